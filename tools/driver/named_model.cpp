#include "tools/driver/named_model.hpp"

#include "workloads/model/model_names.hpp"

#include <fmt/format.h>

namespace orrery::inline driver {

void add_model_limits(const std::string& model, const DataDirectory& data, std::vector<std::string>& notes) {
    if (const std::string what = model.empty() ? "" : not_modelled(model, data); !what.empty()) {
        notes.push_back(fmt::format("not modelled of {}: {}", model, what));
    }
}

}  // namespace orrery::inline driver
