#include "sim/config/fields.hpp"
#include "sim/config/reference.hpp"

#include <doctest/doctest.h>

using namespace orrery;

namespace {

struct Disk {
    double rate = 1e9;
    std::int64_t copies = 1;
};

struct Store {
    std::int64_t nodes = 1;
    bool mirrored = false;
    double spread = 0.5;
    std::int64_t parity = 2;
    bool caches = false;
    double cache = 4e9;
    std::vector<Disk> disks;
    std::optional<double> limit;

    void describe(Fields& fields) {
        fields.integer({"nodes", "nodes of the store", true, 1, 100}, nodes);
        fields.when(mirrored, "mirrors", [&](Fields& same) {
            same.quantity({"spread", "share of the blocks on another node", false, 0, 1}, Dimension::fraction, spread);
        });
        fields.boolean({"mirrored", "every block is on two nodes"}, mirrored);
        fields.when(
            nodes > 2, "three nodes",
            [&](Fields& same) {
                same.integer({"parity", "blocks", false, 0, 9}, parity);
            },
            Unmet::noted);
        fields.optional({"cache", "memory in front of the disks"}, caches, [&](Fields& inner) {
            inner.quantity({"size", "bytes", false, 0, 1e12}, Dimension::bytes, cache);
        });
        fields.items({"disks", "disks of a node"}, disks, [](Fields& inner, Disk& disk) {
            inner.quantity({"rate", "bytes per second", false, 1, 1e12}, Dimension::rate, disk.rate);
            inner.integer({"copies", "equal disks", false, 1, 99}, disk.copies);
        });
        fields.quantity({"limit", "bytes", false, 0, 1e12}, Dimension::bytes, limit);
        fields.needs("cache", !disks.empty(), "disks behind it");
    }
};

std::string differences(const std::string& text, WithoutEffect* found = nullptr) {
    Store store;
    Store usual;
    const YamlNode root = parse_yaml(text, "store");
    std::vector<Diagnostic> errors;
    read_fields(root, DataDirectory(""), errors, [&](Fields& fields) { store.describe(fields); });
    REQUIRE(errors.empty());
    const auto own = [&](Fields& fields) { store.describe(fields); };
    const auto plain = [&](Fields& fields) { usual.describe(fields); };
    if (found != nullptr) {
        *found = without_effect(root, own, plain);
    }
    return write_differences(own, plain);
}

}  // namespace

TEST_CASE("what is written of a specification is what differs from its defaults, and reads back") {
    CHECK(differences("nodes: 1") == R"({"nodes":1})");
    CHECK(differences("nodes: 4\nmirrored: false\nparity: 2\nlimit: 8 GiB") == R"({"nodes":4,"limit":"8589934592 B"})");
    // A map whose presence turns something on is written though it holds defaults alone.
    const std::string full = "nodes: 3\nmirrored: true\nspread: 25 %\ncache: {}\ndisks: [{copies: 2}, {rate: 1 GB/s}]";
    const std::string written = differences(full);
    CHECK(written == R"({"nodes":3,"spread":"0.25","mirrored":true,"cache":{},"disks":[{"copies":2},{}]})");
    CHECK(differences(written) == written);
}

TEST_CASE("a value whose condition does not hold is an error or a note, and its default is neither") {
    WithoutEffect found;
    (void)differences("nodes: 1\nspread: 50 %\nparity: 2", &found);
    CHECK(found.errors.empty());
    CHECK(found.notes.empty());
    CHECK(differences("nodes: 1\nspread: 20 %\nparity: 3\ncache: {size: 1 GB}", &found) == R"({"nodes":1,"parity":3})");
    REQUIRE(found.errors.size() == 2);
    CHECK(found.errors[0].text == "'spread' has no effect without mirrors");
    CHECK(found.errors[0].line == 2);
    CHECK(found.errors[1].text == "'cache' has no effect without disks behind it");
    REQUIRE(found.notes.size() == 1);
    CHECK(found.notes[0] == "'parity' has no effect without three nodes");
}

TEST_CASE("conditions stand in the schema and in the reference") {
    Store store;
    const std::string schema = schema_of([&](Fields& fields) { store.describe(fields); });
    CHECK(schema.find("share of the blocks on another node; no effect without mirrors") != std::string::npos);
    CHECK(schema.find("memory in front of the disks; no effect without disks behind it") != std::string::npos);
    for (const KeyReference& row : reference_of([&](Fields& fields) { store.describe(fields); })) {
        CHECK(row.needs == (row.path == "spread"   ? "mirrors"
                            : row.path == "parity" ? "three nodes"
                            : row.path == "cache"  ? "disks behind it"
                                                   : ""));
    }
}
