#pragma once
// Files that appear whole or not at all, whatever ends the process.
//
// What is written goes into a file of its own in the folder of the target, which no other process writes to, and gets the
// target's name when it is whole and on the disk. Errors, TERM, INT and HUP remove it. Validated by
// tests/sim/record/output_file_test.cpp.

#include "sim/base/namespaces.hpp"

#include <string>
#include <vector>

namespace orrery::record {

/// A new, empty file beside a target; removed with its scope unless it took the target's name.
class PartFile {
  public:
    /// A target that is a link stays one: the file that it leads to is replaced. `companions`: ends of names of files that whoever
    /// writes the part may make beside it, which are removed with it. Throws ConfigError when the folder takes no file.
    explicit PartFile(const std::string& target, const std::vector<std::string>& companions = {});
    ~PartFile();
    PartFile(const PartFile&) = delete;
    PartFile& operator=(const PartFile&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    /// Throws ConfigError, with the reason of the system.
    void write(const std::string& text);
    /// Gives the file the target's name, once it is on the disk. Throws ConfigError.
    void keep();

  private:
    [[noreturn]] void fail() const;
    void remove_all();

    std::string asked_;   ///< as errors call it
    std::string target_;  ///< behind links
    std::string path_;
    std::vector<std::string> all_;  ///< the part and its companions
    int file_ = -1;
    bool kept_ = false;
};

}  // namespace orrery::record
