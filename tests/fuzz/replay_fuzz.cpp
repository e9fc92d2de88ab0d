// libFuzzer target: the first byte picks a reader of traces, the rest is its file; a trace or a ConfigError comes out.

#include "sim/base/error.hpp"
#include "workloads/replay/importers/chakra.hpp"

#include <cstddef>
#include <cstdint>

namespace {

const orrery::DataDirectory kData = orrery::DataDirectory(ORRERY_SOURCE_DIR).read_once();

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::string text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
    try {
        // The table's importers that read one file as text, a rank of a Chakra trace, and the format of our own.
        const auto& table = orrery::importer_table();
        const std::size_t choice = bytes[0] % (table.size() + 2);
        if (choice < table.size()) {
            (void)table[choice]->read(orrery::ImportInput::of_bytes("fuzz", text).with(kData));
            return 0;
        }
        orrery::ReplayTrace trace;
        trace.ranks = 2;
        trace.same_program = false;
        if (choice == table.size()) {
            orrery::ImportNotes notes;
            orrery::import_chakra_rank(text, "fuzz", 0, {}, {size % 2 == 0, 0}, trace, notes);
        } else {
            trace = orrery::parse_replay(text, "fuzz");
        }
        (void)orrery::format_replay(trace);
    } catch (const orrery::ConfigError&) {
    }
    return 0;
}
