#include "workloads/faults/methods/method.hpp"

namespace orrery::faults {

namespace {

// Into the memory of hosts, with copies or parity on neighbouring nodes; every so many into the store as well.
// Sources: Wang et al., GEMINI, SOSP 2023 (replicas in the memory of peers); REFT, arXiv:2310.12670 (parity in sharding groups).
class InMemory final : public CheckpointMethod {
  public:
    struct Parameters {
        std::int64_t group = 2;
        std::int64_t parity = 1;
        double share = 0.2;
        std::int64_t persist_every = 10;
        void describe(Fields& fields) {
            fields.integer({"group", "protection group size in neighbouring nodes; 2 with parity 1: a mirrored copy",
                            false, 2, 1 << 16},
                           group);
            fields.integer({"parity", "nodes of a group that may be lost (Reed-Solomon)", false, 1, 1 << 16}, parity);
            fields.quantity({"nic_share", "share of the NICs' bandwidth for copies and parity", false, 0.01, 0.95},
                            Dimension::fraction, share);
            fields.integer({"persist_every", "interval of stored checkpoints: every n-th also goes to the store", false,
                            1, 1 << 20},
                           persist_every);
        }
    };
    explicit InMemory(const Parameters& parameters) : own_(parameters) {}
    CheckpointCost cost(const CheckpointSetting& setting) const override {
        CheckpointCost out;
        out.in_memory = true;
        out.group = static_cast<std::uint32_t>(own_.group);
        out.parity = static_cast<std::uint32_t>(own_.parity);
        out.stall_s = setting.to_host_s();
        const double sent = setting.bytes_per_node() * out.parity / (out.group - out.parity);
        if (setting.nic > 0) {
            out.nic_share = own_.share;
            out.background_s = sent / (own_.share * setting.nic);
            // A machine that takes a place reads that place's part from its group.
            out.load_s = setting.bytes_per_node() / setting.nic;
        }
        out.load_s += setting.to_host_s() + (setting.frozen > 0 ? setting.load_s(setting.frozen) : 0);
        out.persist_every = static_cast<std::uint32_t>(own_.persist_every);
        out.persist_s = setting.save_s();
        out.persisted_load_s = setting.load_s();
        return out;
    }

    std::string problem() const override {
        return own_.parity < own_.group ? "" : "'parity' must be less than 'group': the data themselves need a node";
    }

  private:
    Parameters own_;
};

}  // namespace

extern const PolicyRow<CheckpointMethod> kMemoryCheckpoint =
    policy_row<CheckpointMethod, InMemory>("memory", "in the memory of hosts, with copies or parity on others");

}  // namespace orrery::faults
