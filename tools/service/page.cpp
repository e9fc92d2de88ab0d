#include "tools/service/page.hpp"

#include <cstddef>

// The assembler puts the file between two symbols.
__asm__(
    ".section .rodata\n.global orrery_service_page\n.global orrery_service_page_end\n"
    "orrery_service_page:\n.incbin \"" ORRERY_SERVICE_PAGE "\"\norrery_service_page_end:\n.previous\n");
extern "C" const char orrery_service_page[];
extern "C" const char orrery_service_page_end[];

namespace orrery::service {

std::string_view service_page() {
    return {orrery_service_page, static_cast<std::size_t>(orrery_service_page_end - orrery_service_page)};
}

}  // namespace orrery::service
