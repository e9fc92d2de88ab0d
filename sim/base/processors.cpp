#include "sim/base/processors.hpp"

#ifdef __linux__
#include <sched.h>

#include <algorithm>
#endif

namespace orrery::base {

#ifdef __linux__

int present_processor() {
    return sched_getcpu();
}

void move_to_other_processor(const std::vector<int>& taken) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return;  // more processors than the set holds
    }
    for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
        if (CPU_ISSET(processor, &allowed) && std::find(taken.begin(), taken.end(), processor) == taken.end()) {
            cpu_set_t only;
            CPU_ZERO(&only);
            CPU_SET(processor, &only);
            // The first call moves the thread, the second leaves it where it is and free to go.
            if (sched_setaffinity(0, sizeof(only), &only) == 0) {
                (void)sched_setaffinity(0, sizeof(allowed), &allowed);
            }
            return;
        }
    }
}

#else

int present_processor() {
    return -1;
}
void move_to_other_processor(const std::vector<int>&) {}

#endif

}  // namespace orrery::base
