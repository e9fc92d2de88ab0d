// The documentation as pages: tools/docs builds them, and every link inside them leads to a page and a heading of it.

#include "tests/support/command.hpp"

#include <map>
#include <regex>
#include <set>
#include <vector>

using namespace orrery;
using namespace orrery::test;

namespace {

namespace fs = std::filesystem;

/// Values of an attribute, such as href="...", in the order of the page.
std::vector<std::string> values_of(const std::string& page, const std::string& attribute) {
    std::vector<std::string> out;
    const std::string start = " " + attribute + "=\"";
    for (std::size_t at = page.find(start); at != std::string::npos; at = page.find(start, at)) {
        at += start.size();
        out.push_back(page.substr(at, page.find('"', at) - at));
    }
    return out;
}

struct Links {
    std::size_t count = 0;
    std::vector<std::string> broken;
};

Links check_links(const fs::path& site) {
    Links out;
    std::map<std::string, std::set<std::string>> anchors;
    std::map<std::string, std::string> pages;
    for (const auto& entry : fs::recursive_directory_iterator(site)) {
        // The page for what is not found has links from the root of a server.
        if (entry.path().extension() == ".html" && entry.path().filename() != "404.html") {
            const std::string text = read(entry.path().string());
            const auto ids = values_of(text, "id");
            anchors[entry.path().string()] = {ids.begin(), ids.end()};
            pages[entry.path().string()] = text;
        }
    }
    for (const auto& [path, text] : pages) {
        std::vector<std::string> links = values_of(text, "href");
        const std::vector<std::string> sources = values_of(text, "src");
        links.insert(links.end(), sources.begin(), sources.end());
        for (const std::string& link : links) {
            const std::string target = link.substr(0, link.find_first_of("#?"));
            const std::string anchor = link.find('#') == std::string::npos ? "" : link.substr(link.find('#') + 1);
            if (target.find(':') != std::string::npos) {
                continue;  // elsewhere
            }
            const fs::path file = target.empty() || target == "."
                                      ? fs::path(path)
                                      : (fs::path(path).parent_path() / target).lexically_normal();
            ++out.count;
            const auto found = anchors.find(file.string());
            if (!fs::is_regular_file(file) ||
                (!anchor.empty() && found != anchors.end() && found->second.count(anchor) == 0)) {
                out.broken.push_back(fs::relative(path, site).string() + " -> " + link);
            }
        }
    }
    return out;
}

}  // namespace

TEST_CASE("a page's link to a missing page, heading or picture is found") {
    const Folder folder;
    (void)folder.file("a.html", R"(<h1 id="top"> <a href="b.html#there"> <a href="#top"> <a href="https://x.org/y">)"
                                R"( <a href="b.html#nowhere"> <a href="c.html"> <img src="d.png">)");
    (void)folder.file("b.html", R"(<h1 id="there">)");
    const Links links = check_links(folder.file(""));
    CHECK(links.count == 5);
    CHECK(links.broken == std::vector<std::string>{"a.html -> b.html#nowhere", "a.html -> c.html", "a.html -> d.png"});
}

TEST_CASE("the files that the documentation names are there, and the commits of its examples") {
    const std::string root = ORRERY_SOURCE_DIR;
    const std::regex span("`([^` ]+)`");
    const bool history =
        shell_command("cd " + root + " && test $(git rev-parse --is-shallow-repository) = false").code == 0;
    std::size_t files = 0;
    std::size_t commits = 0;
    for (const auto& entry : fs::recursive_directory_iterator(root + "/docs")) {
        if (entry.path().extension() != ".md") {
            continue;
        }
        const std::string text = read(entry.path().string());
        for (std::sregex_iterator at(text.begin(), text.end(), span); at != std::sregex_iterator(); ++at) {
            const std::string name = (*at)[1];
            const bool pattern = name.find("NAME") != std::string::npos;
            if (std::regex_match(name, std::regex("[a-z]+/[A-Za-z0-9_/.-]*\\.(cpp|hpp|md|yaml|csv)")) && !pattern) {
                CHECK_MESSAGE(fs::exists(root + "/" + name), entry.path().filename().string() << " names " << name);
                ++files;
            } else if (std::regex_match(name, std::regex("[0-9a-f]{8}"))) {
                ++commits;
                if (history) {
                    CHECK_MESSAGE(shell_command("git -C " + root + " cat-file -e " + name + "^{commit}").code == 0,
                                  name);
                }
            }
        }
    }
    CHECK(files > 20);
    CHECK(commits >= 9);
}

TEST_CASE("the documentation is built as pages, and its links lead somewhere") {
    if (shell_command("command -v mkdocs").code != 0) {
        MESSAGE("skipped: no mkdocs here");
        return;
    }
    const Folder folder;
    const Outcome out =
        shell_command(fmt::format("{}/tools/docs {} {}", ORRERY_SOURCE_DIR, orrery_program(), folder.file("docs")));
    REQUIRE_MESSAGE(out.code == 0, out.text);
    const fs::path site = folder.file("docs/site");
    const Links links = check_links(site);
    CHECK(links.count > 1000);
    CHECK_MESSAGE(links.broken.empty(), fmt::format("{}", fmt::join(links.broken, "\n")));
    for (const std::string kind :
         {"training", "collective", "network", "replay", "serving", "cluster", "rl", "sweep"}) {
        CHECK_MESSAGE(read((site / "docs/reference" / (kind + ".html")).string()).find("<table>") != std::string::npos,
                      kind);
    }
    // What only other kinds have is left out, and tables of the program's lists have their columns.
    const std::string network = read((site / "docs/reference/network.html").string());
    CHECK(network.find("<code>traffic</code>") != std::string::npos);
    CHECK(network.find("<code>engine</code>") == std::string::npos);
    const std::string policies = read((site / "docs/reference/policies.html").string());
    CHECK(policies.find("<td>kv-cost</td>") != std::string::npos);
    CHECK(policies.find("RFC 8257") != std::string::npos);
    CHECK(read((site / "docs/reference/metrics.html").string()).find("<code>ttft_s</code>") != std::string::npos);
    CHECK(read((site / "docs/reference/presets.html").string()).find("<td>llama-3-8b</td>") != std::string::npos);
}
