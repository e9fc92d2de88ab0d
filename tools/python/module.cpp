// The compiled part of the Python package: a command line in a child process, without the interpreter's lock. What users see is in
// the package beside this file.

#include "tools/program/entry.hpp"
#include "tools/program/invoke.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace py = pybind11;

namespace {

/// Ends the commands that were started with it, from any thread.
struct Stop {
    std::atomic<bool> asked = false;
};

py::object invoke(const std::vector<std::string>& words, const std::string& input, const std::shared_ptr<Stop>& stop) {
    std::optional<orrery::program::Invocation> ended;
    {
        const py::gil_scoped_release release;
        ended = orrery::program::invoke(words, input, [&] {
            if (stop != nullptr && stop->asked) {
                return true;
            }
            const py::gil_scoped_acquire acquire;
            if (PyErr_CheckSignals() != 0) {  // Ctrl-C, or what a handler of the caller's own raised
                throw py::error_already_set();
            }
            return false;
        });
    }
    if (!ended) {
        return py::none();
    }
    return py::make_tuple(ended->code, py::bytes(ended->output), py::bytes(ended->errors));
}

int run_program(const std::vector<std::string>& words) {
    std::vector<std::string> copies = words;
    std::vector<char*> arguments;
    for (std::string& word : copies) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    return orrery::program::run_program(static_cast<int>(words.size()), arguments.data());
}

}  // namespace

PYBIND11_MODULE(_orrery, module) {
    module.attr("__version__") = ORRERY_VERSION;
    py::class_<Stop, std::shared_ptr<Stop>>(module, "Stop").def(py::init<>()).def("set", [](Stop& stop) {
        stop.asked = true;
    });
    module.def("invoke", &invoke, py::arg("words"), py::arg("input"), py::arg("stop") = nullptr,
               "Runs a command line in a child process; returns (exit code, output, errors), or None when stopped.");
    module.def("run_program", &run_program, py::arg("words"), "The program itself, in this process.");
}
