#include "sim/network/path/bitmap.hpp"

namespace orrery::network::packet {

extern const PolicyRow<PathChooser> kBitmap =
    policy_row<PathChooser, Bitmap>("bitmap", "paths in rotation, without those that were marked or trimmed");

}  // namespace orrery::network::packet
