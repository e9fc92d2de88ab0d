// The row of the table that takes its steps from a file.

#include "workloads/collective/algorithms/algorithm.hpp"
#include "workloads/collective/programs/program.hpp"

namespace orrery::collective {

extern const CollectiveAlgorithm kProgramAlgorithm = {
    "program", "the steps of a file: MSCCL's XML, MSCCL++'s JSON, or a list of sends in order",
    [](Fields& fields, CollectiveSpec& spec) {
        fields.text(
            {"program", "file with the algorithm's steps: MSCCL (.xml), MSCCL++ (.json) or sends in order (.csv)",
             !fields.names_all()},
            spec.program);
    },
    [](const CollectiveSpec& spec, double ranks, double) {
        return static_cast<double>(read_program(spec.program, spec.op, static_cast<std::uint32_t>(ranks)).messages());
    },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t) {
        add_program(builder, read_program(spec.program, spec.op, ranks), spec.bytes);
    }};

}  // namespace orrery::collective
