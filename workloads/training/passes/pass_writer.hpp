#pragma once
// What PassCost writes its programs with. Internal to workloads/training.

#include "workloads/training/passes/pass_cost.hpp"

namespace orrery::training {

/// Writes the program of one direction of a pass, in the order in which the host launches it.
class PassCost::Writer {
  public:
    using Id = PassProgram::Id;

    Writer(Category kernels, const PassCost& cost)
        : kernels_(kernels),
          graphs_(cost.software_.graphs),
          captured_(graphs_ != CudaGraphs::none),
          tensor_units_(cost.tensor_units_),
          units_(cost.units_),
          memory_rate_(cost.memory_rate_) {}

    /// What follows is part of the layer's graph, or of none.
    void capture(bool captured) {
        captured_ = graphs_ == CudaGraphs::iteration || (captured && graphs_ == CudaGraphs::layers);
    }

    Id kernel(const char* name, const Alone& alone, double launches = 1, Id after = PassProgram::kNone) {
        return program_.add({name,
                             kernels_,
                             PassStream::compute,
                             alone.seconds,
                             captured_ ? 0 : launches,
                             {after, PassProgram::kNone},
                             0,
                             alone.share_of(memory_rate_)});
    }
    /// Waits for the last kernel, beside what is before it on its communicator.
    Id collective(const char* name, PassStream stream, const Alone& alone) {
        return collective(name, stream, alone, program_.last(PassStream::compute));
    }
    Id collective(const char* name, PassStream stream, const Alone& alone, Id after, double launches = 1) {
        const Category category = stream == PassStream::tensor    ? Category::tensor_communication
                                  : stream == PassStream::context ? Category::context_communication
                                                                  : Category::expert_communication;
        return booked(category, name, stream, alone, after, launches);
    }
    Id booked(Category category, const char* name, PassStream stream, const Alone& alone, Id after,
              double launches = 1) {
        return program_.add({name,
                             category,
                             stream,
                             alone.seconds,
                             alone.seconds > 0 && !captured_ ? launches : 0.0,
                             {after, PassProgram::kNone},
                             stream == PassStream::tensor ? tensor_units_ : units_,
                             alone.share_of(memory_rate_)});
    }
    /// Kernels that come after this wait for it.
    void wait(Id id) {
        if (id != PassProgram::kNone) {
            program_.add({"", kernels_, PassStream::compute, 0, 0, {id, PassProgram::kNone}});
        }
    }
    /// A product behind a collective or before it: in as many pieces as ranks when they are chunked, each piece of one with
    /// the same piece of the other. One call of the host launches all pieces.
    void gathered(const char* gather, const Alone& communication, const char* product, const Alone& alone, int pieces) {
        const Id before = program_.last(PassStream::compute);
        const double share = 1.0 / pieces;
        for (int i = 0; i < pieces; ++i) {
            const Id piece = collective(gather, PassStream::tensor, share * communication, before, share);
            kernel(product, share * alone, share, piece);
        }
    }
    void scattered(const char* scatter, const Alone& communication, const char* product, const Alone& alone,
                   int pieces) {
        Id piece = PassProgram::kNone;
        const double share = 1.0 / pieces;
        for (int i = 0; i < pieces; ++i) {
            const Id before = kernel(product, share * alone, share);
            piece = collective(scatter, PassStream::tensor, share * communication, before, share);
        }
        wait(piece);
    }
    PassProgram& program() { return program_; }

  private:
    Category kernels_;
    CudaGraphs graphs_;
    bool captured_;
    double tensor_units_, units_, memory_rate_;
    PassProgram program_;
};

}  // namespace orrery::training
