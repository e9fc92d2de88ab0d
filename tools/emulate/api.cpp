#include "tools/emulate/api.hpp"

#include "sim/base/random.hpp"
#include "tools/emulate/openai.hpp"
#include "tools/emulate/server.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <utility>

namespace orrery::emulate {

namespace {

using Json = nlohmann::json;
using httplib::Request;
using httplib::Response;

constexpr std::size_t kMostBody = 16U << 20U;
constexpr std::size_t kMostConnections = 2048;
constexpr int kPatience = 20;  // s: a client that sends nothing, or reads nothing, for so long is dropped
constexpr auto kLook = std::chrono::milliseconds(100);  // whether a client is still there

void refuse(Response& response, const ApiError& error) {
    response.status = error.status;
    response.set_content(error_body(error), "application/json");
}

/// An answer under way: takes one of the places while it lives, and leaves the simulation with its client.
class UnderWay {
  public:
    UnderWay(std::atomic<std::size_t>& taken, std::size_t most) : taken_(taken), full_(taken.fetch_add(1) >= most) {}
    ~UnderWay() {
        if (model_ != nullptr && !done_) {
            model_->cancel(ticket_);
        }
        taken_.fetch_sub(1);
    }
    UnderWay(const UnderWay&) = delete;
    UnderWay& operator=(const UnderWay&) = delete;
    [[nodiscard]] bool full() const { return full_; }
    /// False: the model lets nobody in any more.
    bool send(EmulatedModel& model, serving::Request request, const std::shared_ptr<Answer>& answer) {
        const auto ticket = model.send(std::move(request), answer);
        if (ticket) {
            model_ = &model;
            ticket_ = *ticket;
        }
        return ticket.has_value();
    }
    void done() { done_ = true; }

  private:
    std::atomic<std::size_t>& taken_;
    bool full_;
    EmulatedModel* model_ = nullptr;
    std::uint32_t ticket_ = 0;
    bool done_ = false;
};

/// Where an injected fault breaks an answer off.
struct Fault {
    bool strikes = false;
    double after = 0;  ///< share of the tokens
};

class Api {
  public:
    Api(const EmulateSettings& settings, const std::vector<std::unique_ptr<EmulatedModel>>& models,
        std::atomic<bool>& ends)
        : settings_(settings), models_(models), ends_(ends) {}

    void add_routes(httplib::Server& server) {
        server.set_pre_routing_handler([this](const Request& request, Response& response) {
            const bool open = request.method == "GET" && !request.path.starts_with("/v1/");
            const auto refusal = service::refusal_of(request, settings_.token, open);
            if (refusal) {
                refuse(response, {refusal->status, refusal->message});
            }
            return refusal ? httplib::Server::HandlerResponse::Handled : httplib::Server::HandlerResponse::Unhandled;
        });
        server.set_error_handler([](const Request& request, Response& response) {
            if (response.body.empty()) {
                refuse(response,
                       {response.status,
                        response.status == 404
                            ? fmt::format("there is no {} {}", request.method, request.path.substr(0, 200))
                        : response.status == 413 ? fmt::format("a request may have at most {} MiB", kMostBody >> 20U)
                                                 : "the request cannot be read"});
            }
        });
        server.set_exception_handler([](const Request&, Response& response, std::exception_ptr problem) {
            try {
                std::rethrow_exception(std::move(problem));
            } catch (const ApiError& error) {
                refuse(response, error);
            } catch (const std::exception& error) {
                refuse(response, {500, error.what()});
            }
        });
        server.Post("/v1/completions",
                    [this](const Request& request, Response& response) { complete(request, response, false); });
        server.Post("/v1/chat/completions",
                    [this](const Request& request, Response& response) { complete(request, response, true); });
        server.Post("/tokenize", [this](const Request& request, Response& response) { tokenize(request, response); });
        server.Get("/v1/models", [this](const Request&, Response& response) { list(response); });
        server.Get("/version", [this](const Request&, Response& response) {
            response.set_content(Json{{"version", settings_.version}}.dump(), "application/json");
        });
        for (const char* path : {"/health", "/ping"}) {
            server.Get(path, [this](const Request&, Response& response) { response.status = healthy() ? 200 : 503; });
        }
        server.Get("/metrics", [this](const Request&, Response& response) {
            std::vector<std::tuple<std::string, const ModelMetrics*, serving::LiveLoad>> all;
            for (const auto& model : models_) {
                all.emplace_back(model->name(), &model->metrics(), model->load());
            }
            response.set_content(exposition(all), "text/plain; version=0.0.4; charset=utf-8");
        });
    }

    [[nodiscard]] bool healthy() const {
        return std::all_of(models_.begin(), models_.end(), [](const auto& model) { return model->runs(); });
    }

  private:
    /// A model that a client names, or one of its adapters.
    struct Named {
        EmulatedModel* model;
        std::uint32_t adapter;
        std::string name;
    };

    [[nodiscard]] Named find(const Body& body) const {
        const std::string name = body.model().value_or(models_.front()->name());
        for (const auto& model : models_) {
            if (name == model->name()) {
                return {model.get(), 0, name};
            }
            for (std::uint32_t i = 1; name.starts_with(model->name()) && i <= model->adapters(); ++i) {
                if (name == model->adapter_name(i)) {
                    return {model.get(), i, name};
                }
            }
        }
        throw ApiError{404, fmt::format("The model `{}` does not exist.", name), "model"};
    }

    void complete(const Request& http, Response& response, bool chat) {
        const Body body(http.body);
        const Named named = find(body);
        const Ask ask = body.ask(chat);
        const serving::LiveLoad load = named.model->load();
        Prompt prompt(load.prefix_cache ? load.block : 0, named.adapter);
        body.add_prompt(chat, prompt);
        const std::uint64_t room = load.context > prompt.tokens() ? load.context - prompt.tokens() : 0;
        if (room == 0 || (ask.most && *ask.most > room)) {
            throw ApiError{
                400,
                fmt::format("This model's maximum context length is {} tokens. However, you requested {} "
                            "tokens ({} in the {}, {} in the completion). Please reduce the length of the "
                            "{} or completion.",
                            load.context, prompt.tokens() + ask.most.value_or(1), prompt.tokens(),
                            chat ? "messages" : "prompt", ask.most.value_or(1), chat ? "messages" : "prompt"),
                chat ? "messages" : "prompt"};
        }
        serving::Request request;
        request.prompt = static_cast<std::uint32_t>(prompt.tokens());
        request.output =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(ask.most.value_or(named.model->usual_answer()), room));
        const Finish finish = ask.most ? Finish::length : Finish::stop;
        request.session = static_cast<std::uint32_t>(hash64(ask.user));
        request.adapter = named.adapter;
        prompt.add_answer(request.output);
        request.content.keys = prompt.keys();
        request.content.key_tokens = std::max(1U, load.block);

        const std::uint64_t number = numbers_.fetch_add(1);
        const Fault fault = draw(number);
        if (fault.strikes && !ask.stream) {
            throw ApiError{500, "injected fault (--fail)"};
        }
        auto under_way = std::make_shared<UnderWay>(taken_, settings_.most_answers);
        if (under_way->full()) {
            response.set_header("Retry-After", "1");
            throw ApiError{503, fmt::format("{} answers are under way; try again in 1 s", settings_.most_answers)};
        }
        const Writer writer(ask, named.name, number, std::time(nullptr), prompt.tokens());
        auto answer =
            std::make_shared<Answer>(named.model->clock(), named.model->metrics(), request.prompt, finish, ask.stream);
        if (!under_way->send(*named.model, request, answer)) {
            throw ApiError{503, "the emulator ends"};
        }
        if (ask.stream) {
            stream(response, writer, under_way, answer, {finish, request.output, fault});
        } else {
            answer_whole(response, writer, *under_way, *answer, finish);
        }
    }

    void answer_whole(Response& response, const Writer& writer, UnderWay& under_way, Answer& answer, Finish finish) {
        Answer::State state = answer.wait(kLook);
        while (!state.end && !ends_ && Server::client_is_there()) {
            state = answer.wait(kLook);
        }
        if (!state.end) {
            throw ApiError{503, "the emulator ends"};
        }
        under_way.done();
        if (*state.end != serving::Ending::finished) {
            throw failure(*state.end);
        }
        response.set_content(writer.whole(state.tokens, kFinishNames[static_cast<std::size_t>(finish)]),
                             "application/json");
    }

    static ApiError failure(serving::Ending how) {
        return how == serving::Ending::refused ? ApiError{400, "the request is longer than the cache of any replica"}
                                               : ApiError{500, "the replica failed, and the request with it"};
    }

    struct Streamed {
        Finish finish;
        std::uint32_t output;
        Fault fault;
    };
    void stream(Response& response, const Writer& writer, const std::shared_ptr<UnderWay>& under_way,
                const std::shared_ptr<Answer>& answer, const Streamed& what) {
        const auto breaks_at = static_cast<std::uint32_t>(what.fault.after * static_cast<double>(what.output));
        response.set_header("Cache-Control", "no-cache");
        response.set_chunked_content_provider(
            "text/event-stream; charset=utf-8", [this, writer, under_way, answer, what, breaks_at, seen = 0U](
                                                    std::size_t, httplib::DataSink& sink) mutable {
                const Answer::State state = answer->wait(kLook);
                std::string out = seen == 0 && !state.steps.empty() ? writer.opening() : "";
                for (const std::uint32_t step : state.steps) {
                    const bool whole = step == what.output;
                    out +=
                        writer.event(seen, step, whole ? kFinishNames[static_cast<std::size_t>(what.finish)] : nullptr);
                    seen = step;
                }
                if (what.fault.strikes && seen > breaks_at) {
                    return false;  // the connection breaks off, without an end of the stream
                }
                if (state.end) {
                    under_way->done();
                    out += *state.end == serving::Ending::finished
                               ? writer.closing(seen)
                               : "data: " + error_body(failure(*state.end)) + "\n\ndata: [DONE]\n\n";
                }
                if (!out.empty() && !sink.write(out.data(), out.size())) {
                    return false;
                }
                if (state.end) {
                    sink.done();
                }
                return out.empty() ? !ends_ && Server::client_is_there() : true;
            });
    }

    void tokenize(const Request& http, Response& response) const {
        const Body body(http.body);
        const Named named = find(body);
        Prompt prompt(0);
        body.add_prompt(body.has_messages(), prompt);
        response.set_content(Json{{"count", prompt.tokens()}, {"max_model_len", named.model->load().context}}.dump(),
                             "application/json");
    }

    void list(Response& response) const {
        Json data = Json::array();
        const auto add = [&](const std::string& name, const Json& parent, const EmulatedModel& model) {
            data.push_back({{"id", name},
                            {"object", "model"},
                            {"created", started_},
                            {"owned_by", "orrery"},
                            {"root", model.name()},
                            {"parent", parent},
                            {"max_model_len", model.load().context}});
        };
        for (const auto& model : models_) {
            add(model->name(), Json(), *model);
            for (std::uint32_t i = 1; i <= model->adapters(); ++i) {
                add(model->adapter_name(i), model->name(), *model);
            }
        }
        response.set_content(Json{{"object", "list"}, {"data", data}}.dump(), "application/json");
    }

    /// By the number of a request: equal seeds break the same ones.
    [[nodiscard]] Fault draw(std::uint64_t number) const {
        constexpr double kUnit = 0x1p-53;
        const std::uint64_t one = mix64(mix64(settings_.seed) ^ number);
        const auto share = [](std::uint64_t bits) { return static_cast<double>(bits >> 11U) * kUnit; };
        return {share(one) < settings_.fails, share(mix64(one))};
    }

    const EmulateSettings& settings_;
    const std::vector<std::unique_ptr<EmulatedModel>>& models_;
    std::atomic<bool>& ends_;
    std::atomic<std::uint64_t> numbers_ = 1;
    std::atomic<std::size_t> taken_ = 0;
    std::int64_t started_ = std::time(nullptr);
};

}  // namespace

void serve_models(const EmulateSettings& settings, const std::vector<std::unique_ptr<EmulatedModel>>& models,
                  const std::function<void(int port)>& ready, const std::function<bool()>& stopping) {
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 2 * kMostConnections) {
        files.rlim_cur = std::min<rlim_t>(files.rlim_max, 2 * kMostConnections);
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    std::atomic<bool> ends = false;
    Api api(settings, models, ends);
    Server server(kMostBody, kPatience);
    server.new_task_queue = [] { return new Threads(kMostConnections); };
    server.set_keep_alive_timeout(kPatience);
    server.set_keep_alive_max_count(1U << 20U);
    api.add_routes(server);
    ready(server.listen_at(settings.address, settings.port));
    server.serve([&] {
        ends = stopping() || !api.healthy();
        return ends.load();
    });
}

}  // namespace orrery::emulate
