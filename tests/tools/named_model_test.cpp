// What presets leave out is noted.

#include "tests/support/support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

using namespace orrery;

namespace {

std::string served(const std::string& model, const std::string& engine) {
    return fmt::format(
        "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: {}\nengine: {{tensor: 8{}}}\n"
        "requests: {{rate: 1, count: 2, prompt: 64, output: 4}}\n",
        model, engine);
}

bool notes(const Scenario& scenario, const std::string& text) {
    const std::vector<std::string>& all = scenario.without_effect;
    return std::any_of(all.begin(), all.end(),
                       [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("what a preset leaves out of a model is a note of its runs") {
    CHECK(notes(test::scenario(served("qwen3.5-397b-a17b", ", weights: fp8")),
                "not modelled of qwen3.5-397b-a17b: gated"));
    CHECK(!notes(test::scenario(served("qwen3-32b", "")), "qwen3"));
}
