#include "workloads/imports/xml_text.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::imports {

namespace {

constexpr std::size_t kDeepestElement = 64;
constexpr std::size_t kMostAttributes = 64;

bool blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// A character by its number, as UTF-8; empty for a number that is none.
std::string character(std::uint32_t number) {
    const auto byte = [](std::uint32_t value) { return static_cast<char>(value); };
    const auto rest = [&](std::uint32_t shift) { return byte(0x80U | ((number >> shift) & 0x3FU)); };
    if (number == 0 || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000)) {
        return "";
    }
    if (number < 0x80) {
        return {byte(number)};
    }
    if (number < 0x800) {
        return {byte(0xC0U | (number >> 6U)), rest(0)};
    }
    if (number < 0x10000) {
        return {byte(0xE0U | (number >> 12U)), rest(6), rest(0)};
    }
    return {byte(0xF0U | (number >> 18U)), rest(12), rest(6), rest(0)};
}

}  // namespace

void XmlText::fail(const std::string& problem) const {
    throw ConfigError({Diagnostic{file_, line_, 1, "is no XML: " + problem, ErrorCode::malformed_trace}});
}

void XmlText::go_to(std::size_t at) {
    ORRERY_ASSERT(counted_ <= at && at <= text_.size());
    at_ = at;
    here_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(counted_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    counted_ = at;
}

bool XmlText::next() {
    if (empty_) {
        empty_ = false;
        close();
        return true;
    }
    while (true) {
        const std::size_t tag = std::min(text_.find('<', at_), text_.size());
        read_text(tag);
        if (at_ == text_.size()) {
            if (!open_.empty()) {
                fail(fmt::format("'{}' is not closed", printable(open_.back().name, 60)));
            }
            if (!finished_) {
                fail("it has no element");
            }
            return false;
        }
        line_ = here_;
        if (skip_markup()) {
            continue;
        }
        if (text_.substr(at_, 2) == "</") {
            close_tag();
        } else {
            open_tag();
        }
        return true;
    }
}

// Characters up to a tag, which belong to the element around them.
void XmlText::read_text(std::size_t end) {
    const std::string_view raw = text_.substr(at_, end - at_);
    line_ = here_;
    if (!open_.empty()) {
        open_.back().text += decoded(raw);
    } else if (const auto stray = std::find_if_not(raw.begin(), raw.end(), blank);
               stray != raw.end() && !(at_ == 0 && raw == "\xEF\xBB\xBF")) {
        go_to(at_ + static_cast<std::size_t>(stray - raw.begin()));
        line_ = here_;
        fail("text outside the elements");
    }
    go_to(end);
}

// Comments, sections of characters, instructions and the document type. False where none of them begins here.
bool XmlText::skip_markup() {
    const auto skip = [&](std::string_view start, std::string_view end, const char* what) {
        if (text_.substr(at_, start.size()) != start) {
            return false;
        }
        const std::size_t from = at_ + start.size();
        const std::size_t stop = text_.find(end, from);
        if (stop == std::string_view::npos) {
            fail(fmt::format("{} without an end", what));
        }
        if (start == "<![CDATA[" && !open_.empty()) {
            open_.back().text += text_.substr(from, stop - from);
        }
        go_to(stop + end.size());
        return true;
    };
    if (skip("<!--", "-->", "a comment") || skip("<![CDATA[", "]]>", "a CDATA section") ||
        skip("<?", "?>", "an instruction")) {
        return true;
    }
    if (text_.substr(at_, 2) != "<!") {
        return false;
    }
    // <!DOCTYPE name [ declarations ]>, in which quotes may hold brackets.
    bool inside = false;
    for (std::size_t i = at_; i < text_.size(); ++i) {
        const char c = text_[i];
        if (c == '"' || c == '\'') {
            i = std::min(text_.find(c, i + 1), text_.size());
        } else if (c == '[' || c == ']') {
            inside = c == '[';
        } else if (c == '>' && !inside) {
            go_to(i + 1);
            return true;
        }
    }
    fail("a declaration without an end");
}

void XmlText::skip_blanks() {
    while (at_ < text_.size() && blank(text_[at_])) {
        ++at_;
    }
}

std::string_view XmlText::read_name() {
    const std::size_t start = at_;
    while (at_ < text_.size() && !blank(text_[at_]) &&
           std::string_view("<>/=\"'&").find(text_[at_]) == std::string_view::npos) {
        ++at_;
    }
    if (at_ == start) {
        fail("a name is missing in a tag");
    }
    return text_.substr(start, at_ - start);
}

void XmlText::open_tag() {
    if (open_.empty() && finished_) {
        fail("a second element beside the first one");
    }
    ++at_;
    name_ = read_name();
    read_attributes();
    empty_ = at_ < text_.size() && text_[at_] == '/';
    at_ += empty_ ? 1 : 0;
    if (at_ >= text_.size() || text_[at_] != '>') {
        fail(fmt::format("the tag of '{}' has no end", printable(name_, 60)));
    }
    if (open_.size() == kDeepestElement) {
        throw ConfigError({Diagnostic{file_, line_, 1, fmt::format("elements nest deeper than {}", kDeepestElement),
                                      ErrorCode::malformed_trace}});
    }
    go_to(at_ + 1);
    kind_ = Kind::open;
    open_.push_back({name_, {}});
}

void XmlText::read_attributes() {
    attributes_.clear();
    for (skip_blanks(); at_ < text_.size() && text_[at_] != '>' && text_[at_] != '/'; skip_blanks()) {
        const std::string_view name = read_name();
        skip_blanks();
        const bool equals = at_ < text_.size() && text_[at_] == '=';
        at_ += equals ? 1 : 0;
        skip_blanks();
        const char quote = at_ < text_.size() ? text_[at_] : ' ';
        const std::size_t end = quote == '"' || quote == '\'' ? text_.find(quote, at_ + 1) : std::string_view::npos;
        if (!equals || end == std::string_view::npos) {
            fail(fmt::format("attribute '{}' has no value in quotes", printable(name, 60)));
        }
        if (attributes_.size() == kMostAttributes) {
            fail(fmt::format("more than {} attributes in a tag", kMostAttributes));
        }
        if (std::any_of(attributes_.begin(), attributes_.end(),
                        [&](const auto& other) { return other.first == name; })) {
            fail(fmt::format("attribute '{}' comes twice in a tag", printable(name, 60)));
        }
        attributes_.emplace_back(name, decoded(text_.substr(at_ + 1, end - at_ - 1)));
        at_ = end + 1;
    }
}

void XmlText::close_tag() {
    at_ += 2;
    name_ = read_name();
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != '>') {
        fail(fmt::format("the end tag of '{}' has no end", printable(name_, 60)));
    }
    if (open_.empty() || open_.back().name != name_) {
        fail(open_.empty()
                 ? fmt::format("'{}' ends and was never begun", printable(name_, 60))
                 : fmt::format("'{}' ends inside '{}'", printable(name_, 60), printable(open_.back().name, 60)));
    }
    go_to(at_ + 1);
    close();
}

void XmlText::close() {
    kind_ = Kind::close;
    ORRERY_ASSERT(!open_.empty());
    name_ = open_.back().name;
    closed_text_ = std::move(open_.back().text);
    attributes_.clear();
    open_.pop_back();
    finished_ = open_.empty();
}

std::string_view XmlText::parent() const {
    if (kind_ == Kind::close) {
        return open_.empty() ? std::string_view() : open_.back().name;
    }
    return open_.size() < 2 ? std::string_view() : open_[open_.size() - 2].name;
}

std::string XmlText::attribute(std::string_view name) const {
    const auto found = std::find_if(attributes_.begin(), attributes_.end(),
                                    [&](const auto& attribute) { return attribute.first == name; });
    return found == attributes_.end() ? std::string() : found->second;
}

std::string XmlText::decoded(std::string_view raw) const {
    static constexpr std::pair<std::string_view, char> kNamed[] = {
        {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
    std::string out;
    while (!raw.empty()) {
        const std::size_t mark = std::min(raw.find('&'), raw.size());
        out += raw.substr(0, mark);
        raw.remove_prefix(mark);
        if (raw.empty()) {
            break;
        }
        constexpr std::size_t kLongest = 12;
        const std::string_view start = raw.substr(0, kLongest);
        const std::size_t end = start.find(';');
        const std::string_view name = start.substr(1, end == std::string_view::npos ? end : end - 1);
        std::string meant;
        for (const auto& [known, c] : kNamed) {
            if (name == known) {
                meant = c;
            }
        }
        if (name.starts_with('#')) {
            const bool hex = name.starts_with("#x");
            const std::string_view digits = name.substr(hex ? 2 : 1);
            std::uint32_t number = 0;
            const auto [stop, problem] =
                std::from_chars(digits.data(), digits.data() + digits.size(), number, hex ? 16 : 10);
            meant = problem == std::errc() && stop == digits.data() + digits.size() ? character(number) : "";
        }
        if (end == std::string_view::npos || meant.empty()) {
            fail(fmt::format("'{}' is no character that is known here",
                             printable(start.substr(0, end == std::string_view::npos ? end : end + 1), 20)));
        }
        out += meant;
        raw.remove_prefix(end + 1);
    }
    return out;
}

}  // namespace orrery::imports
