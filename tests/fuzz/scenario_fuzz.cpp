// libFuzzer target: any text is either a scenario or a ConfigError. Built by tools/test --soak where clang is at hand.

#include "tools/driver/scenario.hpp"

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    static const orrery::DataDirectory kData(ORRERY_SOURCE_DIR);
    const std::string text(reinterpret_cast<const char*>(bytes), size);
    try {
        orrery::YamlNode tree = orrery::parse_yaml(text, "fuzz");
        // The first line doubles as an override, so that paths of keys are fuzzed too.
        try {
            orrery::apply_override(tree, text.substr(0, text.find('\n')));
        } catch (const orrery::ConfigError&) {
        }
        (void)orrery::read_scenario(tree, "fuzz", kData);
    } catch (const orrery::ConfigError&) {
    } catch (const orrery::InfeasibleError&) {
    }
    return 0;
}
