// The table of transports: one row each.

#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

extern const PolicyRow<Transport> kIdeal;
extern const PolicyRow<Transport> kWindow;
extern const PolicyRow<Transport> kRoce;
extern const PolicyRow<Transport> kSwift;
extern const PolicyRow<Transport> kReceiverDriven;
extern const PolicyRow<Transport> kMultipath;
extern const PolicyRow<Transport> kNscc;
extern const PolicyRow<Transport> kDctcp;
extern const PolicyRow<Transport> kCubic;
extern const PolicyRow<Transport> kTimely;
extern const PolicyRow<Transport> kHpcc;
extern const PolicyRow<Transport> kRccc;
extern const PolicyRow<Transport> kStrack;
extern const PolicyRow<Transport> kMpRdma;
extern const PolicyRow<Transport> kFalcon;
extern const PolicyRow<Transport> kSrd;
extern const PolicyRow<Transport> kInfiniband;

const PolicyTable<Transport>& transport_table() {
    static const PolicyTable<Transport> kTable = {
        &kIdeal,  &kWindow, &kRoce, &kSwift,  &kReceiverDriven, &kMultipath, &kNscc, &kDctcp,      &kCubic,
        &kTimely, &kHpcc,   &kRccc, &kStrack, &kMpRdma,         &kFalcon,    &kSrd,  &kInfiniband,
    };
    return kTable;
}

}  // namespace orrery::network::packet
