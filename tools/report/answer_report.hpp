#pragma once
// Reports of commands that search or compare: plan, capacity, recommend and compare.

#include "tools/sweep/table.hpp"

#include <string>
#include <utility>
#include <vector>

namespace orrery::report {

struct NamedPoint {
    std::string name;  ///< what it is, as the reader would choose it
    double x = 0, y = 0;
    std::string group;      ///< by which it is coloured
    bool on_front = false;  ///< no other point is better in both; its name stands beside it
};

/// Points in a plane; an axis over more than a decade is logarithmic.
struct AnswerChart {
    std::string title, note;
    std::string x, y;  ///< names of the axes, with their units
    std::vector<NamedPoint> points;
    bool joined = false;  ///< by lines from left to right, a line for each group
};

struct AnswerTable {
    std::string title;
    ResultTable table;
    bool folded = false;  ///< behind its title
};

struct Answer {
    std::string title, subtitle;
    std::vector<std::pair<std::string, std::string>> facts;  ///< "Question", "Hardware", "Answer", "Cost"...
    std::vector<std::pair<bool, std::string>> verdicts;      ///< met or not, and of what
    std::vector<std::string> findings;
    std::vector<AnswerChart> charts;
    std::vector<AnswerTable> tables;
    std::vector<std::string> notes;
};

[[nodiscard]] std::string answer_report(const Answer& answer);

}  // namespace orrery::report
