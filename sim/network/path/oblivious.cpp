#include "sim/network/path/oblivious.hpp"

namespace orrery::network::packet {

extern const PolicyRow<PathChooser> kOblivious =
    policy_row<PathChooser, Oblivious>("oblivious", "each packet over a path picked by a hash");

}  // namespace orrery::network::packet
