// What users read is plain English: descriptions are no fragments, sentences are short, and terms are those of the field.

#include "tests/support/command.hpp"
#include "tests/support/prose.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"

#include "sim/record/metric_table.hpp"
#include "tools/reference/reference.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr std::ptrdiff_t kWords = 25;     // of a description
constexpr std::ptrdiff_t kSentence = 35;  // of a guide

std::ptrdiff_t words_of(const std::string& text) {
    std::istringstream stream(text);
    return std::distance(std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>());
}

std::string first_word(const std::string& text) {
    std::string out = text.substr(0, text.find_first_of(" ,:;"));
    std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
    return out;
}

// A description begins with what the key is or does. These begin the rest of a sentence that nobody has read.
bool is_fragment(const std::string& text) {
    static const std::set<std::string> kStarts = {"of",    "that", "which", "whose", "as",     "by",    "in",   "from",
                                                  "where", "what", "it",    "its",   "they",   "their", "and",  "or",
                                                  "so",    "such", "than",  "but",   "beside", "on",    "with", "to"};
    return kStarts.contains(first_word(text)) || text.rfind("the same", 0) == 0;
}

// Words that this project once had for things that the field has its own words for.
const std::regex& private_words() {
    static const std::regex words(
        "\\b(anew|alike|beside|besides|under way|handover|hand-over|bereft|crew|islands?|lone|so many|of it|unlike)\\b",
        std::regex::icase);
    return words;
}

void check_description(const std::string& where, const std::string& text, std::ptrdiff_t most = kWords) {
    CHECK_MESSAGE(!is_fragment(text), where << " begins as a fragment: " << text);
    CHECK_MESSAGE(words_of(text) <= most, where << " has more than " << most << " words: " << text);
    CHECK_MESSAGE(!std::regex_search(text, private_words()), where << " has a private word: " << text);
}

std::string document(const std::string& name) {
    std::ifstream stream(std::string(ORRERY_SOURCE_DIR) + "/" + name);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

}  // namespace

TEST_CASE("a rule for fragments that finds some would find those that were there") {
    CHECK(is_fragment("of an exchanged weight"));
    CHECK(is_fragment("that tell where a gradient belongs"));
    CHECK(is_fragment("the same inside a replayed graph"));
    CHECK(!is_fragment("bits of an exchanged weight"));
    CHECK(std::regex_search("PCIe lanes of it", private_words()));
    CHECK(!std::regex_search("PCIe lanes per device", private_words()));
}

TEST_CASE("descriptions of keys say what a key is, in at most 25 words and the field's terms") {
    std::set<std::string> seen;
    for (const std::string& kind : reference::reference_kinds()) {
        for (const KeyReference& row : reference::reference_of_kind(kind, data())) {
            if (seen.insert(row.doc).second) {
                check_description(kind + " " + row.path, row.doc);
            }
        }
    }
    CHECK(seen.size() > 800);
}

TEST_CASE("descriptions of commands, options and metrics say what they are or do") {
    constexpr std::ptrdiff_t kHelp = 32;  // formats that an option writes are listed with it
    const std::regex option("  (?:-., )?--([a-z-]+)(?: (\\S+))?\\s+(.*)");
    std::size_t options = 0;
    for (const char* command : {"run", "explain", "diff", "compare", "plan", "capacity", "recommend", "sweep", "table",
                                "plot", "check", "export", "init", "topology", "validate", "calibrate", "price"}) {
        std::istringstream help(orrery_command(std::string("help ") + command).text);
        for (std::string line; std::getline(help, line);) {
            if (std::smatch found; std::regex_match(line, found, option)) {
                check_description(std::string(command) + " --" + found[1].str(), found[3], kHelp);
                ++options;
            }
        }
    }
    CHECK(options > 100);
    for (const record::MetricRow& metric : record::metric_table()) {
        check_description(metric.name, metric.meaning);
    }
}

TEST_CASE("guides have sentences of at most 35 words, without private terms") {
    std::vector<std::string> files = {"README.md", "AGENTS.md", "scenarios/README.md", "docs/cookbook.md"};
    for (const auto& entry : std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/docs/tutorials")) {
        files.push_back("docs/tutorials/" + entry.path().filename().string());
    }
    const std::regex private_terms("\\b(anew|alike|under way|handover|hand-over|crew|islands?|lone|so many|unlike)\\b");
    const std::regex end("[.:;!?] ");
    std::size_t sentences = 0;
    for (const std::string& file : files) {
        for (const std::string& part : prose_of(document(file))) {
            for (std::sregex_token_iterator at(part.begin(), part.end(), end, -1); at != std::sregex_token_iterator();
                 ++at) {
                CHECK_MESSAGE(words_of(*at) <= kSentence, file << " has a long sentence: " << std::string(*at));
                ++sentences;
            }
            CHECK_MESSAGE(!std::regex_search(part, private_terms), file << " has a private term: " << part);
        }
    }
    CHECK(sentences > 300);
}
