#include "tools/report/resources.hpp"

// The assembler puts each file between two symbols.
#define ORRERY_EMBED(name, path)                                                            \
    __asm__(".section .rodata\n.global orrery_" #name "\n.global orrery_" #name             \
            "_end\n"                                                                        \
            "orrery_" #name ":\n.incbin \"" path "\"\norrery_" #name "_end:\n.previous\n"); \
    extern "C" const char orrery_##name[];                                                  \
    extern "C" const char orrery_##name##_end[]

ORRERY_EMBED(page, ORRERY_SOURCE_DIR "/tools/report/report.html");
ORRERY_EMBED(style, ORRERY_SOURCE_DIR "/tools/report/report.css");
ORRERY_EMBED(script, ORRERY_SOURCE_DIR "/tools/report/report.js");
ORRERY_EMBED(chart, ORRERY_CHART_JS);

namespace orrery::report {

namespace {

std::string_view between(const char* begin, const char* end) {
    return {begin, static_cast<std::size_t>(end - begin)};
}

}  // namespace

std::string_view report_page() {
    return between(orrery_page, orrery_page_end);
}
std::string_view report_style() {
    return between(orrery_style, orrery_style_end);
}
std::string_view report_script() {
    return between(orrery_script, orrery_script_end);
}
std::string_view chart_script() {
    return between(orrery_chart, orrery_chart_end);
}

}  // namespace orrery::report
