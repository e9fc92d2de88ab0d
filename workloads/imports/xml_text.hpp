#pragma once
// XML 1.0, element by element: what importers of XML need, in one pass and without recursion.
//
// Limits: UTF-8, no namespaces, no entities but the five of XML and numbers; a document type is passed over.

#include "sim/base/namespaces.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::imports {

class XmlText {
  public:
    enum class Kind { open, close };

    /// Both must outlive the reader. `file` is what errors call it.
    XmlText(std::string_view text, const std::string& file) : text_(text), file_(file) {}

    /// Goes to the next start or end of an element (an empty one has both); false at the end of the document.
    /// Throws ConfigError for what is no XML, and for elements that nest deeper than 64.
    bool next();

    [[nodiscard]] Kind kind() const { return kind_; }
    [[nodiscard]] std::string_view name() const { return name_; }
    /// The name of the element around this one; empty at the root.
    [[nodiscard]] std::string_view parent() const;
    /// Levels of elements down to this one, from 1.
    [[nodiscard]] std::size_t depth() const { return open_.size() + (kind_ == Kind::close ? 1 : 0); }
    /// Where the element of this start or end begins.
    [[nodiscard]] int line() const { return line_; }
    /// Of a start: the value of an attribute, empty where there is none.
    [[nodiscard]] std::string attribute(std::string_view name) const;
    /// Of an end: the text directly in the element.
    [[nodiscard]] const std::string& text() const { return closed_text_; }

  private:
    struct Open {
        std::string_view name;
        std::string text;
    };

    [[noreturn]] void fail(const std::string& problem) const;
    bool skip_markup();
    void read_text(std::size_t end);
    void open_tag();
    void close_tag();
    void close();
    void read_attributes();
    std::string_view read_name();
    void skip_blanks();
    [[nodiscard]] std::string decoded(std::string_view raw) const;
    void go_to(std::size_t at);

    std::string_view text_;
    const std::string& file_;
    std::size_t at_ = 0;
    std::size_t counted_ = 0;  ///< bytes whose lines are in here_
    int here_ = 1;
    int line_ = 1;
    bool empty_ = false;  ///< the start just given is of an element without content
    bool finished_ = false;
    Kind kind_ = Kind::open;
    std::string_view name_;
    std::string closed_text_;
    std::vector<std::pair<std::string_view, std::string>> attributes_;
    std::vector<Open> open_;
};

}  // namespace orrery::imports
