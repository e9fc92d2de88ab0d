#include "sim/network/resource_kind.hpp"

#include <cctype>

namespace orrery::network {

std::string kind_of_resource(std::string name) {
    while (!name.empty() && (std::isdigit(static_cast<unsigned char>(name.back())) != 0 || name.back() == ' ')) {
        name.pop_back();
    }
    for (const char* end : {", link", ", GPU", ", node"}) {
        if (name.ends_with(end)) {
            name.resize(name.size() - std::string(end).size());
        }
    }
    return name;
}

}  // namespace orrery::network
