// Pace of the emulator: medians of TTFT and TPOT that a client sees over a minute at 50 requests per second, against those of the
// simulation behind it.
//
// emulate PROGRAM [SECONDS] [RATE]: exits 1 when a median is off by more than 3 ms and 3 %. The machine should be idle otherwise: the
// client and the server share it. Prompts have 100 to 700 tokens and answers 20 to 80, each evenly spread.

#include "sim/base/random.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kScenario = R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: {preset: dgx-h100, gpus: 1, nics: 1}}
model: llama-3-8b
engine: {software: vllm-0.19}
requests: {rate: 50, count: 1}
)";

/// The process of the emulator.
struct Emulator {
    pid_t process = 0;
    int output = -1;
    int port = 0;
};

Emulator start(const std::string& program) {
    std::string file = "/tmp/orrery-emulate-bench-XXXXXX.yaml";
    const int scenario = mkstemps(file.data(), 5);
    int out[2];
    int err[2];
    if (scenario < 0 || write(scenario, kScenario, std::string(kScenario).size()) < 0 || pipe(out) != 0 ||
        pipe(err) != 0) {
        std::abort();
    }
    (void)close(scenario);
    Emulator one;
    one.process = fork();
    if (one.process == 0) {
        (void)dup2(out[1], 1);
        (void)dup2(err[1], 2);
        execl(program.c_str(), program.c_str(), "emulate", file.c_str(), "--port", "0", "--json", "-", nullptr);
        _exit(127);
    }
    (void)close(out[1]);
    (void)close(err[1]);
    one.output = out[0];
    std::string line;
    for (char next = 0; read(err[0], &next, 1) == 1 && next != '\n';) {
        line += next;
    }
    const std::size_t at = line.rfind(":", line.find("/v1"));
    if (line.find("/v1") == std::string::npos) {
        fmt::print("the emulator did not start: {}\n", line);
        std::exit(2);
    }
    one.port = std::atoi(line.c_str() + at + 1);
    (void)unlink(file.c_str());
    return one;
}

nlohmann::json finish(const Emulator& one) {
    (void)kill(one.process, SIGTERM);
    std::string text;
    char buffer[4096];
    for (ssize_t got = 0; (got = read(one.output, buffer, sizeof buffer)) > 0;) {
        text.append(buffer, static_cast<std::size_t>(got));
    }
    int status = 0;
    (void)waitpid(one.process, &status, 0);
    return nlohmann::json::parse(text);
}

struct Exchange {
    int socket = -1;
    Clock::time_point sent, first, last;
    int tokens = 0;
    bool ended = false;
    std::string rest;  ///< of a line that is not whole
};

int connect_to(int port) {
    const int one = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int yes = 1;
    (void)setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(one, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
        fmt::print("no connection\n");
        std::exit(2);
    }
    return one;
}

void take(Exchange& one, const char* data, std::size_t size) {
    const Clock::time_point now = Clock::now();
    one.rest.append(data, size);
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = one.rest.find('\n', begin)) != std::string::npos; begin = end + 1) {
        const std::string line = one.rest.substr(begin, end - begin);
        if (line.find("\"text\":") != std::string::npos) {
            one.first = one.tokens++ == 0 ? now : one.first;
            one.last = now;
        }
        one.ended = one.ended || line.find("[DONE]") != std::string::npos;
    }
    one.rest.erase(0, begin);
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}

bool compare(const char* name, double client, double simulated) {
    const bool fine = std::abs(client - simulated) <= std::max(3e-3, 0.03 * simulated);
    fmt::print("{:<5} median at the client {:8.3f} ms, of the simulation {:8.3f} ms: {:+.3f} ms, {:+.1f} %{}\n", name,
               1e3 * client, 1e3 * simulated, 1e3 * (client - simulated), 100 * (client / simulated - 1),
               fine ? "" : "  TOO FAR");
    return fine;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        fmt::print("emulate PROGRAM [SECONDS] [RATE]\n");
        return 2;
    }
    const double seconds = argc > 2 ? std::atof(argv[2]) : 60;
    const double rate = argc > 3 ? std::atof(argv[3]) : 50;
    const Emulator emulator = start(argv[1]);
    orrery::RandomStream random(1, "bench/emulate");
    std::vector<Exchange> all;
    std::vector<std::size_t> open;
    std::vector<char> buffer(1U << 16U);
    const Clock::time_point begin = Clock::now();
    Clock::time_point next = begin;
    const Clock::time_point end =
        begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    while (next < end || !open.empty()) {
        if (next < end && Clock::now() >= next) {
            const auto prompt = 100 + random.below(600);
            const auto output = 20 + random.below(60);
            const std::string body =
                fmt::format(R"({{"prompt":"{}","max_tokens":{},"stream":true}})", std::string(4 * prompt, 'x'), output);
            const std::string text = fmt::format(
                "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: "
                "application/json\r\nContent-Length: {}\r\n\r\n{}",
                body.size(), body);
            Exchange one;
            one.socket = connect_to(emulator.port);
            one.sent = Clock::now();
            if (write(one.socket, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
                return 2;
            }
            open.push_back(all.size());
            all.push_back(std::move(one));
            next += std::chrono::duration_cast<Clock::duration>(
                std::chrono::duration<double>(random.exponential(1 / rate)));
            continue;
        }
        std::vector<pollfd> waits;
        for (const std::size_t i : open) {
            waits.push_back({all[i].socket, POLLIN, 0});
        }
        timespec until{0, 50'000'000};
        if (next < end) {
            const auto left = std::max(Clock::duration(0), next - Clock::now());
            until.tv_nsec = std::min<long>(until.tv_nsec, std::chrono::nanoseconds(left).count());
        }
        (void)ppoll(waits.data(), waits.size(), &until, nullptr);
        for (std::size_t i = 0; i < waits.size(); ++i) {
            if (waits[i].revents == 0) {
                continue;
            }
            Exchange& one = all[open[i]];
            const ssize_t got = read(one.socket, buffer.data(), buffer.size());
            if (got > 0) {
                take(one, buffer.data(), static_cast<std::size_t>(got));
            }
            if (got <= 0) {
                (void)close(one.socket);
                one.socket = -1;
            }
        }
        std::erase_if(open, [&](std::size_t i) { return all[i].socket < 0; });
    }
    const nlohmann::json metrics = finish(emulator).at("metrics");
    std::vector<double> ttft;
    std::vector<double> tpot;
    for (const Exchange& one : all) {
        if (!one.ended || one.tokens < 2) {
            fmt::print("a stream of {} tokens is not whole\n", one.tokens);
            return 1;
        }
        ttft.push_back(std::chrono::duration<double>(one.first - one.sent).count());
        tpot.push_back(std::chrono::duration<double>(one.last - one.first).count() / (one.tokens - 1));
    }
    fmt::print("{} requests in {} s\n", all.size(), seconds);
    const bool first = compare("TTFT", median(ttft), metrics.at("ttft_s").at("p50").at("value").get<double>());
    const bool later = compare("TPOT", median(tpot), metrics.at("tpot_s").at("p50").at("value").get<double>());
    return first && later ? 0 : 1;
}
