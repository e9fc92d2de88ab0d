// The Python module: orrery.run and orrery.sweep. Optional: cmake -DORRERY_PYTHON=ON.
//
//   import orrery, pandas
//   summary = orrery.run("scenario.yaml", ["plan.tensor=4"])            # the JSON summary as a dict
//   summary = orrery.run({"orrery": 1, "kind": "collective", ...})      # a scenario, or a sweep, as a dict of the same keys
//   rows = orrery.sweep("sweep.yaml", "results.sqlite", jobs=2)         # one dict a point
//   frame = pandas.DataFrame(rows)

#include "tools/driver/run.hpp"
#include "tools/driver/scenario.hpp"
#include "tools/sweep/run_sweep.hpp"
#include "tools/sweep/table.hpp"
#include "tools/sweep/worker_pool.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <variant>

namespace py = pybind11;

namespace {

orrery::DataDirectory data_directory() {
    return orrery::find_data_directory("");
}

py::object from_json(const std::string& text) {
    return py::module_::import("json").attr("loads")(text);
}

// A dict as YAML, of which JSON is a part: errors name the line that json.dumps(..., indent=1) has.
orrery::YamlNode tree_of(const py::dict& dict) {
    using namespace py::literals;
    const auto text = py::module_::import("json").attr("dumps")(dict, "indent"_a = 1).cast<std::string>();
    return orrery::parse_yaml(text, "dict");
}

orrery::Scenario scenario_of(const std::variant<std::string, py::dict>& given, const std::vector<std::string>& set,
                             const orrery::DataDirectory& data) {
    if (const auto* path = std::get_if<std::string>(&given)) {
        return orrery::load_scenario(*path, set, data);
    }
    orrery::YamlNode root = tree_of(std::get<py::dict>(given));
    for (const std::string& assignment : set) {
        orrery::apply_override(root, assignment);
    }
    return orrery::read_scenario(root, "dict", data);
}

orrery::SweepSpec sweep_of(const std::variant<std::string, py::dict>& given, const std::vector<std::string>& set,
                           const orrery::DataDirectory& data) {
    if (const auto* path = std::get_if<std::string>(&given)) {
        return orrery::load_sweep(*path, set, data);
    }
    return orrery::read_sweep(tree_of(std::get<py::dict>(given)), "dict", ".", set, data);
}

py::object run(const std::variant<std::string, py::dict>& scenario, const std::vector<std::string>& set) {
    const orrery::DataDirectory data = data_directory();
    orrery::ModelCache models(data);
    return from_json(to_json(orrery::run_scenario(scenario_of(scenario, set, data), models, {}).summary, false));
}

py::object sweep(const std::variant<std::string, py::dict>& sweep, const std::string& database, unsigned jobs,
                 bool resume, const std::vector<std::string>& set) {
    const orrery::DataDirectory data = data_directory();
    orrery::SweepOptions options;
    options.database = database;
    options.workers = jobs > 0 ? jobs : orrery::available_cores();
    options.resume = resume;
    options.version = ORRERY_VERSION;
    (void)orrery::run_sweep(sweep_of(sweep, set, data), data, options);
    const orrery::ResultStore store(database, orrery::ResultStore::Mode::read);
    return from_json(to_json(orrery::read_table(store)));
}

}  // namespace

PYBIND11_MODULE(orrery, module) {
    module.doc() = "Orrery: a discrete-event simulator of AI clusters";
    module.attr("__version__") = ORRERY_VERSION;
    py::register_exception<orrery::Error>(module, "Error");
    module.def("run", &run, py::arg("scenario"), py::arg("set") = std::vector<std::string>(),
               "Simulates a scenario, a file or a dict (whose files lie in the working directory); returns its summary "
               "as a dict. `set`: key.path=value overrides.");
    module.def(
        "sweep", &sweep, py::arg("sweep"), py::arg("database"), py::arg("jobs") = 0, py::arg("resume") = false,
        py::arg("set") = std::vector<std::string>(),
        "Runs a sweep, a file or a dict, into a database; returns one dict a point, which pandas.DataFrame takes.");
}
