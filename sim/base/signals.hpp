#pragma once
// What the process still does when TERM, INT or HUP ends it: files that are not whole are removed, and the user learns what was done.
//
// A handler may neither lock nor allocate, so both stand ready in fixed places. Afterwards the signal ends the process as it would have
// without a handler: whoever waits for it sees which one it was. Signals that were ignored when the process started stay ignored.
// Validated by tests/sim/record/output_file_test.cpp and tests/tools/hostile_input_test.cpp.

#include "sim/base/namespaces.hpp"

#include <string>

namespace orrery::base {

/// From now on a signal removes the file at this path, which must keep its address until forget_at_signal(). A process that is forked
/// has no part in it. Beyond 32 files at once a signal leaves the rest.
void remove_at_signal(const std::string& path);
void forget_at_signal(const std::string& path);

/// What INT (Ctrl-C) prints on standard error, cut to 2,000 bytes; empty: nothing. In place of what was set before.
void say_at_interrupt(const std::string& text);

}  // namespace orrery::base
