#include "workloads/model/model_names.hpp"

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"
#include "sim/config/yaml_tree.hpp"
#include "workloads/model/model_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>

namespace orrery::model {

namespace {

constexpr const char* kNames = "workloads/data/model_names.csv";
constexpr const char* kSources = "workloads/data/model_sources.csv";
constexpr const char* kCheckpoints = "workloads/data/model_checkpoints.csv";

struct Line {
    std::vector<std::string> cells;
    Mark mark;
};

// Lines of a table, without its header and comments. The last column takes the rest of a line, commas too.
std::vector<Line> read_table(const std::string& path, std::size_t columns) {
    std::vector<Line> out;
    std::ifstream file(path);
    const auto name = std::make_shared<const std::string>(path);
    int number = 0;
    for (std::string text; std::getline(file, text);) {
        ++number;
        if (text.empty() || text[0] == '#' || number == 1) {
            continue;
        }
        Line line;
        line.mark = Mark{name, number, 1};
        std::size_t begin = 0;
        while (line.cells.size() + 1 < columns) {
            const std::size_t end = text.find(',', begin);
            if (end == std::string::npos) {
                throw ConfigError({line.mark.error(
                    fmt::format("has {} columns, and this table {}", line.cells.size() + 1, columns))});
            }
            line.cells.push_back(text.substr(begin, end - begin));
            begin = end + 1;
        }
        line.cells.push_back(text.substr(begin));
        out.push_back(std::move(line));
    }
    return out;
}

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

/// A row of names: that of a checkpoint, or a rule, whose star stands for the rest of a name.
struct NameRow {
    std::string owner;  ///< before the slash; empty: any
    std::string text;   ///< behind it, in lower case; of a rule without its star
    bool suffix = false, prefix = false;
    NamedCheckpoint of;
    Mark mark;

    [[nodiscard]] bool rule() const { return suffix || prefix; }
    /// Whether the rule takes something off a name, and leaves something of it. A # stands for any digit.
    [[nodiscard]] bool takes(const std::string& from, const std::string& name) const {
        if (!rule() || name.size() <= text.size() || (!owner.empty() && owner != from)) {
            return false;
        }
        const std::string part = prefix ? name.substr(0, text.size()) : name.substr(name.size() - text.size());
        return std::equal(part.begin(), part.end(), text.begin(), [](unsigned char c, char wanted) {
            return wanted == '#' ? std::isdigit(c) != 0 : c == static_cast<unsigned char>(wanted);
        });
    }
};

std::vector<NameRow> read_names(const DataDirectory& data) {
    std::vector<NameRow> out;
    for (const std::string& root : {data.own(), data.root()}) {
        if (root.empty()) {
            continue;
        }
        for (const Line& line : read_table(fmt::format("{}/{}", root, kNames), 6)) {
            NameRow row;
            row.text = lower(line.cells[0]);
            row.mark = line.mark;
            if (const std::size_t slash = row.text.rfind('/'); slash != std::string::npos) {
                row.owner = row.text.substr(0, slash);
                row.text = row.text.substr(slash + 1);
            }
            row.suffix = row.text.rfind('*', 0) == 0;
            row.prefix = !row.suffix && row.text.ends_with('*');
            std::erase(row.text, '*');
            if (row.text.empty()) {
                throw ConfigError({row.mark.error("names nothing")});
            }
            row.of = {line.cells[1], line.cells[2], line.cells[3], line.cells[4], line.cells[5], "", 0};
            for (const std::string& precision : {row.of.weights, row.of.experts}) {
                const std::vector<std::string>& known = precision_names();
                if (!precision.empty() && std::find(known.begin(), known.end(), precision) == known.end()) {
                    throw ConfigError({row.mark.error(fmt::format("'{}' is no precision", precision))});
                }
            }
            out.push_back(std::move(row));
        }
    }
    return out;
}

// A name without what folders spell otherwise: the dashes between letters and digits.
std::string joined(const std::string& name) {
    std::string out;
    for (std::size_t i = 0; i < name.size(); ++i) {
        const auto digit = [&](std::size_t at) { return std::isdigit(static_cast<unsigned char>(name[at])) != 0; };
        if (name[i] != '-' || i == 0 || i + 1 == name.size() || digit(i - 1) == digit(i + 1)) {
            out += name[i];
        }
    }
    return out;
}

// Compares without these dashes where `loose` is set.
const NameRow* row_of(const std::vector<NameRow>& rows, const std::string& owner, const std::string& name, bool loose) {
    const NameRow* found = nullptr;
    const std::string wanted = loose ? joined(name) : name;
    for (const NameRow& row : rows) {
        if (!row.rule() && (loose ? joined(row.text) : row.text) == wanted &&
            (row.owner == owner || found == nullptr)) {
            const bool exact = row.owner == owner;
            found = &row;
            if (exact) {
                break;
            }
        }
    }
    return found;
}

// Of the rules that take something off a name the one that takes most, and of several the one for its owner.
const NameRow* rule_for(const std::vector<NameRow>& rows, const std::string& owner, const std::string& name) {
    const NameRow* best = nullptr;
    const auto rank = [](const NameRow& row) { return std::pair(row.text.size(), !row.owner.empty()); };
    for (const NameRow& row : rows) {
        if (row.takes(owner, name) && (best == nullptr || rank(row) > rank(*best))) {
            best = &row;
        }
    }
    return best;
}

/// What checkpoints of a name say of themselves.
struct CheckpointRow {
    std::string name;  ///< in lower case; without its star
    bool suffix = false;
    std::int64_t context = 0;
    std::string cache;
};

std::vector<CheckpointRow> read_checkpoints(const DataDirectory& data) {
    std::vector<CheckpointRow> out;
    for (const Line& line : read_table(data.path(kCheckpoints), 3)) {
        CheckpointRow row{lower(line.cells[0]), false, 0, line.cells[2]};
        row.suffix = row.name.find('*') != std::string::npos;
        double context = 0;
        if (!line.cells[1].empty() && (!parse_number(line.cells[1], context) || context < 1 || context > 1e9)) {
            throw ConfigError({line.mark.error(fmt::format("'{}' is no number of tokens", line.cells[1]))});
        }
        row.context = static_cast<std::int64_t>(context);
        out.push_back(std::move(row));
    }
    return out;
}

// Whether a row is of a checkpoint: of its owner and name, or of the name alone where either says no owner.
bool row_is_of(const CheckpointRow& row, const std::string& owner, const std::string& name) {
    const std::size_t slash = row.name.rfind('/');
    const std::string own = slash == std::string::npos ? "" : row.name.substr(0, slash);
    const std::string text = slash == std::string::npos ? row.name : row.name.substr(slash + 1);
    if (row.suffix) {
        return own == owner && name.size() > text.size() && name.ends_with(text.substr(1));
    }
    return text == name && (own.empty() || owner.empty() || own == owner);
}

// What one checkpoint says, found by the names that formats and other endings leave of it one after another.
class Sayings {
  public:
    Sayings(std::vector<CheckpointRow> rows, std::string owner) : rows_(std::move(rows)), owner_(std::move(owner)) {}

    void look(const std::string& name) {
        const CheckpointRow* found = nullptr;
        for (const CheckpointRow& row : rows_) {
            found = row_is_of(row, owner_, name) && (found == nullptr || found->suffix) ? &row : found;
        }
        if (found != nullptr) {
            context_ = context_ > 0 ? context_ : found->context;
            cache_ = said_ ? cache_ : found->cache;
            said_ = true;
        }
    }
    void tell(NamedCheckpoint& out) const {
        out.context = context_;
        out.cache = cache_;
    }

  private:
    std::vector<CheckpointRow> rows_;
    std::string owner_;
    std::int64_t context_ = 0;
    std::string cache_;
    bool said_ = false;  ///< the row of the longest name says the precision of its cache, or that it has none
};

bool narrow(const std::string& precision) {
    return precision == "fp8" || precision == "fp4" || precision == "int8" || precision == "int4";
}

}  // namespace

double NamedCheckpoint::beside() const {
    const std::size_t bracket = left_out.rfind('(');
    const std::size_t end = bracket == std::string::npos ? bracket : left_out.find(" B)", bracket);
    double billions = 0;
    return end != std::string::npos && parse_number(left_out.substr(bracket + 1, end - bracket - 1), billions)
               ? billions
               : 0;
}

bool NamedCheckpoint::quantised() const {
    return narrow(weights) || narrow(experts);
}

std::string NamedCheckpoint::precision() const {
    return experts.empty() || experts == weights
               ? weights
               : fmt::format("{}, experts in {}", weights.empty() ? "bf16" : weights, experts);
}

std::string checkpoint_id(std::string name) {
    if (const std::size_t scheme = name.find("://"); scheme != std::string::npos) {
        name.erase(0, scheme + 3);
    }
    while (name.size() > 1 && name.back() == '/') {
        name.pop_back();
    }
    if (const std::size_t cached = name.find("models--"); cached != std::string::npos) {
        name = name.substr(cached + 8, name.find('/', cached) - cached - 8);
        if (const std::size_t owner = name.find("--"); owner != std::string::npos) {
            name.replace(owner, 2, "/");
        }
    }
    const std::string small = lower(name);
    if (small.ends_with(".gguf")) {
        name.erase(name.size() - 5);
    } else if (const std::size_t quantised = small.find("-gguf:"); quantised != std::string::npos) {
        name.replace(quantised, 6, ".");
    }
    return name;
}

static std::optional<NamedCheckpoint> checkpoint_of(const std::string& name, const DataDirectory& data, bool loose) {
    const std::vector<std::string> presets = data.names(kModelPresets);
    const auto known = [&](const std::string& preset) {
        return std::binary_search(presets.begin(), presets.end(), preset);
    };
    if (known(name)) {
        NamedCheckpoint out;
        out.preset = name;
        Sayings plain(read_checkpoints(data), "");
        plain.look(name);
        plain.tell(out);
        return out;
    }
    const std::size_t slash = name.rfind('/');
    const std::string owner = slash == std::string::npos ? "" : lower(name.substr(0, slash));
    std::string rest = lower(slash == std::string::npos ? name : name.substr(slash + 1));
    if (loose) {
        std::replace(rest.begin(), rest.end(), '_', '-');
    }
    const std::vector<NameRow> rows = read_names(data);
    Sayings sayings(read_checkpoints(data), owner);
    const NameRow* format = nullptr;  // the rule that says the precision: the last suffix
    std::string left_out;
    for (;;) {
        NamedCheckpoint out;
        sayings.look(rest);
        if (const NameRow* row = row_of(rows, owner, rest, loose)) {
            if (!known(row->of.preset)) {
                throw ConfigError({row->mark.error(fmt::format("'{}' is no preset of a model", row->of.preset))});
            }
            out = row->of;
        } else if (known(rest)) {
            out.preset = rest;
        } else if (loose) {
            const auto same = std::find_if(presets.begin(), presets.end(),
                                           [&](const std::string& preset) { return joined(preset) == joined(rest); });
            out.preset = same == presets.end() ? "" : *same;
        }
        if (!out.preset.empty()) {
            const bool experts = data.preset(kModelPresets, out.preset)->find("experts") != nullptr;
            if (format != nullptr) {
                // Formats for experts alone leave attention and what else is dense in 16 bits.
                const bool alone = experts && !format->of.experts.empty();
                out.weights = alone ? "bf16" : format->of.weights;
                out.experts = alone ? format->of.experts : "";
                out.scaling = format->of.scaling;
            }
            if (out.experts == out.weights) {
                out.experts.clear();
            }
            if (!experts || (out.experts.empty() ? out.weights : out.experts) != "fp8") {
                out.scaling.clear();  // the factors of other formats are not told apart
            }
            out.left_out = out.left_out.empty() ? left_out : out.left_out;
            sayings.look(out.preset);
            sayings.tell(out);
            return out;
        }
        const NameRow* rule = rule_for(rows, owner, rest);
        if (rule == nullptr) {
            return std::nullopt;
        }
        if (format == nullptr && !rule->of.weights.empty()) {
            format = rule;
        }
        left_out = rule->of.left_out.empty() ? left_out : rule->of.left_out;
        ORRERY_ASSERT(rest.size() > rule->text.size());
        rest = rule->prefix ? rest.substr(rule->text.size()) : rest.substr(0, rest.size() - rule->text.size());
    }
}

std::optional<NamedCheckpoint> find_checkpoint(const std::string& written, const DataDirectory& data) {
    const std::string name = checkpoint_id(written);
    std::optional<NamedCheckpoint> out = checkpoint_of(name, data, false);
    return out ? out : checkpoint_of(name, data, true);
}

std::vector<ModelSource> model_sources(const DataDirectory& data) {
    std::vector<ModelSource> out;
    for (const Line& line : read_table(data.path(kSources), 6)) {
        ModelSource row;
        row.preset = line.cells[0];
        row.source = line.cells[1];
        double* const figures[] = {&row.total, &row.active, &row.tolerance};
        for (std::size_t i = 0; i < 3; ++i) {
            try {
                *figures[i] = line.cells[i + 2].empty() ? *figures[i] : std::stod(line.cells[i + 2]);
            } catch (const std::exception&) {
                throw ConfigError({line.mark.error(fmt::format("'{}' is no number", line.cells[i + 2]))});
            }
        }
        row.not_modelled = line.cells[5];
        out.push_back(std::move(row));
    }
    return out;
}

std::string not_modelled(const std::string& preset, const DataDirectory& data) {
    for (const Line& line : read_table(data.path(kSources), 6)) {
        if (line.cells[0] == preset) {
            return line.cells[5];
        }
    }
    return "";
}

double active_parameters(const ModelSpec& model) {
    if (model.experts.count == 0) {
        return model.parameters();
    }
    const double idle = 1 - static_cast<double>(model.experts.topk) / static_cast<double>(model.experts.count);
    return model.parameters() - static_cast<double>(model.expert_layers()) * model.routed_parameters() * idle;
}

}  // namespace orrery::model
