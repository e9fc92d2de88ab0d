// libFuzzer target: the first byte picks a reader of traces, the rest is its file; a trace or a ConfigError comes out.

#include "sim/base/error.hpp"
#include "workloads/replay/importers/importer.hpp"

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::string text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
    try {
        orrery::ReplayTrace trace;
        trace.ranks = 2;
        trace.same_program = false;
        switch (bytes[0] % 5) {
            case 0:
                trace = orrery::import_pytorch(text, "fuzz");
                break;
            case 1:
                trace = orrery::import_goal(text, "fuzz");
                break;
            case 2:
                trace = orrery::import_aicb(text, "fuzz");
                break;
            case 3:
                orrery::import_chakra_rank(text, "fuzz", 0, {}, trace);
                break;
            default:
                trace = orrery::parse_replay(text, "fuzz");
                break;
        }
        (void)orrery::format_replay(trace);
    } catch (const orrery::ConfigError&) {
    }
    return 0;
}
