#include "tools/service/http_api.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "tools/program/command_tools.hpp"
#include "tools/program/shallow_json.hpp"
#include "tools/service/http_server.hpp"
#include "tools/service/openapi.hpp"
#include "tools/service/page.hpp"

#include <fmt/format.h>
#include <httplib.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

namespace orrery::service {

namespace {

using Json = nlohmann::ordered_json;
using httplib::Request;
using httplib::Response;

constexpr std::size_t kThreads = 48;  // connections that are served at once
constexpr int kMostStreams = 16;      // of them, those that follow events
constexpr int kMostSynchronous = 16;  // and those that wait for a command
constexpr std::size_t kMostBody = 16U << 20U;
constexpr int kReadSeconds = 5;  // a client that sends nothing, or reads nothing, for so long is dropped
constexpr auto kTick = std::chrono::milliseconds(200);
constexpr auto kHeartbeat = std::chrono::seconds(10);

std::string text_of(const Json& value) {
    return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void answer(Response& response, int status, const Json& value) {
    response.status = status;
    response.set_content(text_of(value), "application/json");
}

void refuse(Response& response, int status, const std::string& message) {
    answer(response, status, {{"errors", Json::array({{{"message", message}}})}});
}

// Holds one of a few places while it lives.
class Place {
  public:
    Place(std::atomic<int>& taken, int most) : taken_(taken) { full_ = taken_.fetch_add(1) >= most; }
    ~Place() { taken_.fetch_sub(1); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    [[nodiscard]] bool full() const { return full_; }

  private:
    std::atomic<int>& taken_;
    bool full_ = false;
};

class Api {
  public:
    Api(const ServiceSettings& settings, const std::function<bool()>& stopping)
        : settings_(settings),
          stopping_(stopping),
          jobs_(settings.jobs, [this](const auto&... all) { return work(all...); }) {
        if (settings.confined) {
            std::vector<std::string> readable = {std::filesystem::path(settings.program).parent_path().string(),
                                                 settings.presets,
                                                 "/usr",
                                                 "/lib",
                                                 "/lib64",
                                                 "/etc/ld.so.cache",
                                                 "/etc/localtime",
                                                 "/proc/meminfo",
                                                 "/sys/fs/cgroup",
                                                 "/sys/devices/system/cpu",
                                                 "/dev/null",
                                                 "/dev/urandom"};
            for (const std::string* more : {&settings.folder, &settings.data}) {
                if (!more->empty()) {
                    readable.push_back(*more);
                }
            }
            confinement_.emplace(readable, std::vector<std::string>{settings.scratch});
        }
        for (const Json& tool : Json::parse(program::command_tools(program::Audience::programs))) {
            commands_.push_back(tool["name"].get<std::string>());
        }
    }

    void add_routes(httplib::Server& server) {
        server.set_pre_routing_handler([this](const Request& request, Response& response) {
            return admitted(request, response) ? httplib::Server::HandlerResponse::Unhandled
                                               : httplib::Server::HandlerResponse::Handled;
        });
        server.set_error_handler([](const Request& request, Response& response) {
            if (response.body.empty()) {
                refuse(response, response.status,
                       response.status == 404   ? fmt::format("there is no {} {}", printable(request.method),
                                                              printable(request.path.substr(0, 200)))
                       : response.status == 413 ? fmt::format("a request may have at most {} MiB", kMostBody >> 20U)
                                                : "the request cannot be read");
            }
        });
        server.set_exception_handler([](const Request&, Response& response, std::exception_ptr problem) {
            try {
                std::rethrow_exception(std::move(problem));
            } catch (const std::exception& error) {
                refuse(response, 500, error.what());
            } catch (...) {
                refuse(response, 500, "internal error");
            }
        });
        server.Get("/", [](const Request&, Response& response) {
            response.set_header("Content-Security-Policy",
                                "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                                "connect-src 'self'; img-src data:; frame-src blob: 'self'; form-action 'none'; "
                                "frame-ancestors 'none'; base-uri 'none'");
            response.set_content(std::string(service_page()), "text/html; charset=utf-8");
        });
        server.Get("/v1", [this](const Request&, Response& response) { describe(response); });
        server.Get("/v1/openapi.json", [this](const Request&, Response& response) {
            response.set_content(openapi(settings_.version), "application/json");
        });
        server.Get("/v1/schema/([a-z-]{1,40})", [this](const Request& request, Response& response) {
            const std::string kind = request.matches[1];
            const auto ended = at_once(kind == "scenario" ? std::vector<std::string>{"schema"}
                                                          : std::vector<std::string>{"schema", "--", kind});
            answer_or(response, ended, [&] { response.set_content(ended.output, "application/schema+json"); });
        });
        server.Get("/v1/list/([a-z-]{1,40})", [this](const Request& request, Response& response) {
            const auto ended = at_once({"list", "--quiet", "--", request.matches[1]});
            answer_or(response, ended, [&] {
                Json names = Json::array();
                for (const std::string_view name : split(ended.output, '\n')) {
                    if (!name.empty()) {
                        names.push_back(std::string(name));
                    }
                }
                answer(response, 200, {{"names", names}});
            });
        });
        server.Post("/v1/jobs", [this](const Request& request, Response& response) { add_job(request, response); });
        server.Get("/v1/jobs/([0-9a-f]{32})", [this](const Request& request, Response& response) {
            if (const auto job = jobs_.view(request.matches[1])) {
                answer(response, 200, described(*job));
            } else {
                refuse(response, 404, "there is no such job, or no longer");
            }
        });
        server.Delete("/v1/jobs/([0-9a-f]{32})", [this](const Request& request, Response& response) {
            if (!jobs_.view(request.matches[1], false)) {
                return refuse(response, 404, "there is no such job, or no longer");
            }
            (void)jobs_.cancel(request.matches[1]);
            response.status = 204;
        });
        server.Get("/v1/jobs/([0-9a-f]{32})/events",
                   [this](const Request& request, Response& response) { follow(request, response); });
        server.Post("/v1/([a-z]{1,40})",
                    [this](const Request& request, Response& response) { run_at_once(request, response); });
    }

  private:
    // A scenario that came over the network, as the work of a job: the result of tools/call.
    std::optional<std::string> work(const std::string& command, const std::string& arguments,
                                    const std::function<void(const std::string&)>& say,
                                    const std::function<bool()>& stop) {
        bool stopped = false;
        try {
            return program::call_command_tool(
                program::Audience::programs, command, arguments,
                [&](const std::vector<std::string>& words, const std::string& input, double limit_s) {
                    auto ended = child(words, input, std::min(limit_s, settings_.seconds), say, stop);
                    if (!ended) {
                        stopped = true;
                        throw program::InvalidParams("cancelled");
                    }
                    return *std::move(ended);
                });
        } catch (const program::InvalidParams& problem) {
            if (stopped) {
                return std::nullopt;
            }
            return text_of(
                {{"isError", true},
                 {"structuredContent", {{"exit_code", 2}, {"errors", Json::array({{{"message", problem.what()}}})}}}});
        }
    }

    std::optional<program::Invocation> child(const std::vector<std::string>& words, const std::string& input,
                                             double limit_s, const std::function<void(const std::string&)>& say,
                                             const std::function<bool()>& stop) {
        std::vector<std::string> all = {settings_.program, words[0], "--output-format=json", "--progress=plain"};
        all.push_back("--memory-limit=" + settings_.memory);
        const bool of_presets = words[0] != "help" && words[0] != "schema" && words[0] != "validate";
        if (of_presets && !settings_.data.empty()) {
            all.push_back("--data=" + settings_.data);
        }
        all.insert(all.end(), words.begin() + 1, words.end());
        ChildLimits limits;
        limits.seconds = limit_s;
        return run_child(
            all, settings_.folder.empty() ? settings_.scratch : settings_.folder, input,
            confinement_ ? &*confinement_ : nullptr, limits,
            [&](const std::string& line) {
                if (!line.empty() && line.front() != '{') {
                    say(line);
                }
            },
            stop);
    }

    program::Invocation at_once(const std::vector<std::string>& words) {
        const Place place(synchronous_, kMostSynchronous);
        if (place.full()) {
            return {503, "", ""};
        }
        auto ended = child(
            words, "", 20, [](const std::string&) {}, stopping_);
        return ended ? *std::move(ended) : program::Invocation{503, "", ""};
    }

    template <class Fine>
    static void answer_or(Response& response, const program::Invocation& ended, const Fine& fine) {
        if (ended.code == 0) {
            fine();
        } else if (ended.code == 503) {
            busy(response);
        } else {
            const Json error = Json::parse(ended.errors.substr(0, ended.errors.find('\n')), nullptr, false);
            answer(response, 404,
                   {{"errors", Json::array({error.is_object() ? error : Json{{"message", ended.errors}}})}});
        }
    }

    static void busy(Response& response) {
        response.set_header("Retry-After", "2");
        refuse(response, 503, "too many requests wait; try again in 2 s");
    }

    // Whether a request may be looked at.
    bool admitted(const Request& request, Response& response) const {
        const bool page = request.path == "/" && request.method == "GET";
        const std::optional<Refusal> refusal = refusal_of(request, settings_.token, page);
        if (refusal) {
            if (refusal->status == 401) {
                response.set_header("WWW-Authenticate", "Bearer");
            }
            refuse(response, refusal->status, refusal->message);
        }
        return !refusal;
    }

    void describe(Response& response) {
        const auto [waiting, running] = jobs_.load();
        answer(response, 200,
               {{"name", "orrery"},
                {"version", settings_.version},
                {"commands", commands_},
                {"openapi", "/v1/openapi.json"},
                {"files", !settings_.folder.empty()},
                {"limits",
                 {{"body_bytes", kMostBody},
                  {"run_s", settings_.seconds},
                  {"run_memory", settings_.memory},
                  {"running", settings_.jobs.running},
                  {"waiting", settings_.jobs.waiting},
                  {"results_kept", settings_.jobs.kept},
                  {"results_kept_s", settings_.jobs.kept_seconds}}},
                {"load", {{"waiting", waiting}, {"running", running}}}});
    }

    // The arguments of a command in `body`, checked as far as they are the same for all; else the response says what is wrong.
    std::optional<std::string> arguments_in(const Json& arguments, Response& response) const {
        if (!arguments.is_object()) {
            refuse(response, 400, "the arguments must be a JSON object");
            return std::nullopt;
        }
        if (arguments.contains("path") && settings_.folder.empty()) {
            refuse(response, 400,
                   "this service opens no files; send the scenario as 'scenario', or start it with --folder");
            return std::nullopt;
        }
        Json full = arguments;
        if (!full.contains("detail")) {
            full["detail"] = "full";  // small answers are for agents
        }
        return full.dump();
    }

    static std::optional<Json> parsed(const Request& request, Response& response) {
        if (program::too_deep(request.body)) {
            refuse(response, 400, fmt::format("the JSON may have at most {} levels", program::kDeepestJson));
            return std::nullopt;
        }
        Json body = request.body.empty() ? Json::object() : Json::parse(request.body, nullptr, false);
        if (!body.is_object()) {
            refuse(response, 400, "the body must be a JSON object in UTF-8");
            return std::nullopt;
        }
        return body;
    }

    bool known(const std::string& command, Response& response) const {
        if (std::find(commands_.begin(), commands_.end(), command) != commands_.end()) {
            return true;
        }
        const std::string near = nearest_name(command, commands_);
        refuse(response, 404,
               fmt::format("there is no command '{}'{}", printable(command),
                           near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near)));
        return false;
    }

    void add_job(const Request& request, Response& response) {
        const std::optional<Json> body = parsed(request, response);
        if (!body) {
            return;
        }
        if (!body->contains("command") || !(*body)["command"].is_string()) {
            return refuse(response, 400, "'command' must be given, as a string");
        }
        const std::string command = (*body)["command"];
        const std::optional<std::string> arguments =
            known(command, response) ? arguments_in(body->value("arguments", Json::object()), response) : std::nullopt;
        if (!arguments) {
            return;
        }
        const std::optional<std::string> id = jobs_.add(command, *arguments);
        if (!id) {
            return busy(response);
        }
        response.set_header("Location", "/v1/jobs/" + *id);
        const auto job = jobs_.view(*id, false);
        answer(response, 202, job ? described(*job) : Json{{"id", *id}});
    }

    // A result of tools/call as what the command answers. `failed`: whether these are errors.
    static Json result_in(const std::string& text, bool& failed) {
        Json call = Json::parse(text, nullptr, false);
        failed = !call.is_object() || call.value("isError", false);
        if (!call.is_object()) {
            return {{"errors", Json::array({{{"message", text}}})}};
        }
        if (call.contains("structuredContent")) {
            Json value = std::move(call["structuredContent"]);
            // A run whose expectations fail is a run.
            failed = failed && !value.contains("metrics");
            return value;
        }
        return {{"text", call["content"][0]["text"]}};
    }

    static Json described(const JobView& job) {
        bool failed = job.state == JobState::failed;
        Json result;
        if (job.ended() && !job.result.empty()) {
            result = result_in(job.result, failed);
        }
        const bool done = job.state == JobState::done || job.state == JobState::failed;
        Json out = {{"id", job.id},
                    {"command", job.command},
                    {"state", done ? (failed ? "failed" : "done") : name_of(job.state)},
                    {"progress", job.progress},
                    {"seconds", job.seconds}};
        if (!result.is_null()) {
            out["result"] = std::move(result);
        }
        return out;
    }

    void run_at_once(const Request& request, Response& response) {
        const std::string command = request.matches[1];
        const std::optional<Json> body = known(command, response) ? parsed(request, response) : std::nullopt;
        const std::optional<std::string> arguments = body ? arguments_in(*body, response) : std::nullopt;
        if (!arguments) {
            return;
        }
        const Place place(synchronous_, kMostSynchronous);
        const std::optional<std::string> id = place.full() ? std::nullopt : jobs_.add(command, *arguments);
        if (!id) {
            return busy(response);
        }
        std::optional<JobView> job;
        for (std::uint64_t seen = 0; (job = jobs_.wait(*id, seen, kTick)) && !job->ended(); seen = job->version) {
            if (stopping_()) {
                (void)jobs_.cancel(*id);
                return refuse(response, 503, "the service stops");
            }
        }
        job = jobs_.view(*id);
        (void)jobs_.cancel(*id);  // nobody asks for it again
        if (!job) {
            return busy(response);
        }
        bool failed = false;
        Json result = result_in(job->result, failed);
        if (failed) {
            const int code = result.value("exit_code", 4);
            return answer(response, code == 2 || code == 3 || code == 1 ? 422 : 500, result);
        }
        if (command == "report") {
            return response.set_content(result["text"].get<std::string>(), "text/html; charset=utf-8");
        }
        answer(response, 200, result);
    }

    void follow(const Request& request, Response& response) {
        const std::string id = request.matches[1];
        if (!jobs_.view(id, false)) {
            return refuse(response, 404, "there is no such job, or no longer");
        }
        auto place = std::make_shared<Place>(streams_, kMostStreams);
        if (place->full()) {
            return busy(response);
        }
        auto seen = std::make_shared<std::uint64_t>(0);
        auto first = std::make_shared<bool>(true);
        response.set_header("Cache-Control", "no-store");
        response.set_chunked_content_provider(
            "text/event-stream", [this, id, seen, first, place](std::size_t, httplib::DataSink& sink) {
                auto quiet = std::chrono::steady_clock::now();
                while (!stopping_()) {
                    const std::optional<JobView> job = jobs_.wait(id, *first ? 0 : *seen, kTick);
                    if (!job) {
                        sink.done();
                        return true;
                    }
                    std::string event;
                    if (*first || job->version > *seen) {
                        event = "event: job\ndata: " + text_of(described(*job)) + "\n";
                    } else if (std::chrono::steady_clock::now() - quiet > kHeartbeat) {
                        event = ": still here\n\n";
                    }
                    *first = false;
                    *seen = job->version;
                    if (!event.empty()) {
                        if (!sink.write(event.data(), event.size())) {
                            return false;
                        }
                        quiet = std::chrono::steady_clock::now();
                    }
                    if (job->ended()) {
                        sink.done();
                        return true;
                    }
                    if (!event.empty()) {
                        return true;  // so that what was written is sent, and the connection looked at
                    }
                }
                sink.done();
                return true;
            });
    }

    const ServiceSettings& settings_;
    const std::function<bool()>& stopping_;
    std::optional<Confinement> confinement_;
    std::vector<std::string> commands_;
    std::atomic<int> streams_ = 0;
    std::atomic<int> synchronous_ = 0;
    Jobs jobs_;  // last: its threads use what stands above
};

}  // namespace

void serve_http(const ServiceSettings& settings, const std::function<void(int port)>& ready,
                const std::function<bool()>& stopping) {
    Api api(settings, stopping);
    HttpServer server(kMostBody, kReadSeconds);
    server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server.set_keep_alive_timeout(2);
    server.set_keep_alive_max_count(1000);
    api.add_routes(server);
    ready(server.listen_at(settings.address, settings.port));
    server.serve(stopping);
}

}  // namespace orrery::service
