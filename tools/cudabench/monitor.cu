// Clocks, power and temperature, from the driver's management library.

#include "tools/cudabench/bench.cuh"

#include <dlfcn.h>
#include <sys/utsname.h>

#include <fstream>
#include <thread>

namespace orrery::cudabench {

namespace {

// "Intel(R) Xeon(R) Platinum 8480+ x 16": model and threads of the host's processor.
std::string host_cpu() {
    std::ifstream in("/proc/cpuinfo");
    for (std::string line; std::getline(in, line);) {
        if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos) {
            return line.substr(line.find(": ") + 2) + " x " + std::to_string(std::thread::hardware_concurrency());
        }
    }
    return "unknown";
}

}  // namespace

// The management library's stable C interface, loaded by name so that neither build nor run needs it.
struct Monitor::Library {
    void* handle = nullptr;
    void* device = nullptr;

    template <typename... Arguments>
    bool call(const char* name, Arguments... arguments) const {
        const auto function =
            reinterpret_cast<int (*)(Arguments...)>(handle == nullptr ? nullptr : dlsym(handle, name));
        return function != nullptr && function(arguments...) == 0;
    }
};

Monitor::Monitor() : library_(std::make_unique<Library>()) {
    library_->handle = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    char bus[32] = {};
    int device = 0;
    const bool ready =
        library_->call("nvmlInit_v2") && cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetPCIBusId(bus, sizeof bus, device) == cudaSuccess &&
        library_->call("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>(bus), &library_->device);
    if (!ready) {
        library_->device = nullptr;
    }
}

Monitor::~Monitor() {
    if (library_->handle != nullptr) {
        library_->call("nvmlShutdown");
        dlclose(library_->handle);
    }
}

Monitor::Sample Monitor::sample() const {
    constexpr int kSmClock = 1;
    constexpr int kMemoryClock = 2;
    constexpr int kGpuTemperature = 0;
    Sample out;
    if (library_->device == nullptr) {
        return out;
    }
    unsigned value = 0;
    if (library_->call("nvmlDeviceGetPowerUsage", library_->device, &value)) {
        out.power_w = value * 1e-3;
    }
    if (library_->call("nvmlDeviceGetClockInfo", library_->device, kSmClock, &value)) {
        out.sm_clock_mhz = value;
    }
    if (library_->call("nvmlDeviceGetClockInfo", library_->device, kMemoryClock, &value)) {
        out.memory_clock_mhz = value;
    }
    if (library_->call("nvmlDeviceGetTemperature", library_->device, kGpuTemperature, &value)) {
        out.temperature_c = value;
    }
    library_->call("nvmlDeviceGetCurrentClocksThrottleReasons", library_->device, &out.throttle);
    out.throttle &= ~1ULL;  // idle is no limit
    return out;
}

std::vector<std::pair<std::string, std::string>> Monitor::meta() const {
    std::vector<std::pair<std::string, std::string>> out = {{"host_cpu", host_cpu()}};
    utsname system{};
    if (uname(&system) == 0) {
        const std::string release = system.release;
        out.emplace_back("os", std::string(system.sysname) + " " + release.substr(0, release.find('-')));
    }
    if (library_->device == nullptr) {
        return out;
    }
    char text[96] = {};
    unsigned second = 0;
    unsigned value = 0;
    constexpr unsigned kLength = sizeof text;
    if (library_->call("nvmlSystemGetDriverVersion", static_cast<char*>(text), kLength)) {
        out.emplace_back("driver", text);
    }
    if (library_->call("nvmlDeviceGetVbiosVersion", library_->device, static_cast<char*>(text), kLength)) {
        out.emplace_back("vbios", text);
    }
    if (library_->call("nvmlDeviceGetPowerManagementLimit", library_->device, &value)) {
        out.emplace_back("power_limit_w", std::to_string(value / 1000));
    }
    if (library_->call("nvmlDeviceGetMaxClockInfo", library_->device, 1, &value)) {
        out.emplace_back("sm_clock_max_mhz", std::to_string(value));
    }
    if (library_->call("nvmlDeviceGetMaxClockInfo", library_->device, 2, &value)) {
        out.emplace_back("memory_clock_max_mhz", std::to_string(value));
    }
    if (library_->call("nvmlDeviceGetCurrPcieLinkGeneration", library_->device, &value) &&
        library_->call("nvmlDeviceGetCurrPcieLinkWidth", library_->device, &second)) {
        out.emplace_back("pcie", "gen" + std::to_string(value) + " x" + std::to_string(second));
    }
    if (library_->call("nvmlDeviceGetPersistenceMode", library_->device, &value)) {
        out.emplace_back("persistence", value != 0 ? "on" : "off");
    }
    if (library_->call("nvmlDeviceGetMigMode", library_->device, &value, &second)) {
        out.emplace_back("mig", value != 0 ? "on" : "off");
    }
    return out;
}

}  // namespace orrery::cudabench
