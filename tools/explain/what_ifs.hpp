#pragma once
// What would help: the run again with more of one thing.

#include "tools/driver/model_cache.hpp"
#include "tools/explain/explain.hpp"

namespace orrery::explain {

/// Tries every what-if that a scenario has and puts them into `out`, best first, with what bounds each part of the run.
/// `base`: summary of the scenario itself.
///
/// Hashed paths, marks and time-outs make packet runs jump when timing changes a little, in either direction: there a gain is
/// the mean over runs with several seeds and factors near 1.1, each against the same seed unchanged, and has its noise. What a
/// scenario leaves to be derived from rate and latency (windows, delay targets) changes with them.
void try_what_ifs(const Scenario& scenario, ModelCache& models, const Summary& base, Explanation& out);

}  // namespace orrery::explain
