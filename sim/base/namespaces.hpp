#pragma once
// The namespaces of the folders, each of which sees the names of all others as those of `orrery`.

namespace orrery {

namespace base {}
namespace calibration {}
namespace check {}
namespace collective {}
namespace config {}
namespace device {}
namespace driver {}
namespace engine {}
namespace explain {}
namespace faults {}
namespace imports {}
namespace init {}
namespace model {}
namespace models {}
namespace network {}
namespace plan {}
namespace program {}
namespace record {}
namespace reference {}
namespace replay {}
namespace report {}
namespace rl {}
namespace run {}
namespace serving {}
namespace sweep {}
namespace terminal {}
namespace topologies {}
namespace trace {}
namespace training {}
namespace validation {}
using namespace base;
using namespace calibration;
using namespace check;
using namespace collective;
using namespace config;
using namespace device;
using namespace driver;
using namespace engine;
using namespace explain;
using namespace faults;
using namespace imports;
using namespace init;
using namespace model;
using namespace models;
using namespace network;
using namespace plan;
using namespace program;
using namespace record;
using namespace reference;
using namespace replay;
using namespace report;
using namespace rl;
using namespace run;
using namespace serving;
using namespace sweep;
using namespace terminal;
using namespace topologies;
using namespace trace;
using namespace training;
using namespace validation;

}  // namespace orrery
