// The Python module: orrery.run and orrery.sweep. Optional: cmake -DORRERY_PYTHON=ON.
//
//   import orrery, pandas
//   summary = orrery.run("scenario.yaml", ["plan.tensor=4"])            # the JSON summary as a dict
//   rows = orrery.sweep("sweep.yaml", "results.sqlite", jobs=2)         # one dict a point
//   frame = pandas.DataFrame(rows)

#include "tools/driver/scenario.hpp"
#include "tools/sweep/run_sweep.hpp"
#include "tools/sweep/table.hpp"
#include "tools/sweep/worker_pool.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace {

orrery::DataDirectory data_directory() {
    return orrery::find_data_directory("");
}

py::object from_json(const std::string& text) {
    return py::module_::import("json").attr("loads")(text);
}

py::object run(const std::string& path, const std::vector<std::string>& set) {
    const orrery::DataDirectory data = data_directory();
    orrery::ModelCache models(data);
    return from_json(to_json(orrery::run(orrery::load_scenario(path, set, data), models, {}).summary, false));
}

py::object sweep(const std::string& path, const std::string& database, unsigned jobs, bool resume,
                 const std::vector<std::string>& set) {
    const orrery::DataDirectory data = data_directory();
    orrery::SweepOptions options;
    options.database = database;
    options.workers = jobs > 0 ? jobs : orrery::available_cores();
    options.resume = resume;
    options.version = ORRERY_VERSION;
    (void)orrery::run_sweep(orrery::load_sweep(path, set, data), data, options);
    const orrery::ResultStore store(database, orrery::ResultStore::Mode::read);
    return from_json(to_json(orrery::read_table(store)));
}

}  // namespace

PYBIND11_MODULE(orrery, module) {
    module.doc() = "Orrery: a discrete-event simulator of AI clusters";
    module.attr("__version__") = ORRERY_VERSION;
    py::register_exception<orrery::Error>(module, "Error");
    module.def("run", &run, py::arg("path"), py::arg("set") = std::vector<std::string>(),
               "Simulates a scenario; returns its summary as a dict. `set`: key.path=value overrides.");
    module.def("sweep", &sweep, py::arg("path"), py::arg("database"), py::arg("jobs") = 0, py::arg("resume") = false,
               py::arg("set") = std::vector<std::string>(),
               "Runs a sweep into a database; returns one dict a point, which pandas.DataFrame takes.");
}
