// The table of path choices: one row each.

#include "sim/network/path/path.hpp"

namespace orrery::network::packet {

extern const PolicyRow<PathChooser> kSpray;
extern const PolicyRow<PathChooser> kEcmp;
extern const PolicyRow<PathChooser> kFlowlet;
extern const PolicyRow<PathChooser> kOblivious;
extern const PolicyRow<PathChooser> kRoundRobin;
extern const PolicyRow<PathChooser> kAdaptive;
extern const PolicyRow<PathChooser> kRecycled;
extern const PolicyRow<PathChooser> kReps;
extern const PolicyRow<PathChooser> kBitmap;
extern const PolicyRow<PathChooser> kMixed;
extern const PolicyRow<PathChooser> kPlanned;
extern const PolicyRow<PathChooser> kClocked;
extern const PolicyRow<PathChooser> kWindowed;

const PolicyTable<PathChooser>& path_table() {
    static const PolicyTable<PathChooser> kTable = {
        &kSpray, &kEcmp,   &kFlowlet, &kOblivious, &kRoundRobin, &kAdaptive, &kRecycled,
        &kReps,  &kBitmap, &kMixed,   &kPlanned,   &kClocked,    &kWindowed,
    };
    return kTable;
}

}  // namespace orrery::network::packet
