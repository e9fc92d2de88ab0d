#include "workloads/imports/serving_load.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <fstream>

namespace orrery::imports {

namespace {

/// Lengths of the requests of a data set.
struct DataSet {
    std::string name;
    double prompt = 0, output = 0;
    std::int64_t common = 0, kinds = 1;  ///< tokens that prompts share, and how many different ones
    double spread = 0;                   ///< of a lognormal distribution; 0: all alike
    std::string source;                  ///< of lengths that are not the client's own; empty: they are
};

std::vector<DataSet> data_sets(const DataDirectory& data) {
    std::vector<DataSet> out;
    const std::string path = data.path("workloads/data/flags/data_sets.csv");
    std::ifstream file(path);
    int number = 0;
    for (std::string line; std::getline(file, line);) {
        if (++number == 1 || line.empty() || line[0] == '#') {
            continue;
        }
        const std::vector<std::string_view> cells = split(line, ',');
        std::array<double, 5> values{};
        bool read = cells.size() >= 7;
        for (std::size_t i = 0; read && i < values.size(); ++i) {
            read = parse_number(cells[i + 1], values[i]);
        }
        if (!read) {
            throw ConfigError({Diagnostic{path, number, 1, "a row has a name, five numbers and a source",
                                          ErrorCode::malformed_trace}});
        }
        out.push_back({std::string(cells[0]), values[0], values[1], static_cast<std::int64_t>(values[2]),
                       static_cast<std::int64_t>(values[3]), values[4],
                       line.substr(static_cast<std::size_t>(cells[6].data() - line.data()))});
    }
    return out;
}

std::string lengths(double mean, double spread, const char* kind) {
    return spread > 0 ? fmt::format("{{kind: {}, mean: {:g}, spread: {:g}}}", kind, mean, spread)
                      : fmt::format("{{kind: fixed, mean: {:g}}}", mean);
}

// What a load says of lengths in one value: "prompt_tokens=256,output_tokens=128", or the same as JSON.
struct LengthSpec {
    double prompt = 0, output = 0;  ///< 0: not said
    double prompt_deviation = 0, output_deviation = 0;
};

LengthSpec length_spec(GivenFlags& flags) {
    LengthSpec out;
    std::string text = flags.text("data_spec");
    std::erase_if(text, [](char c) { return c == '{' || c == '}' || c == '"' || c == '\'' || c == ' '; });
    std::replace(text.begin(), text.end(), ':', '=');
    for (const std::string_view part : split(std::string_view(text), ',')) {
        const std::size_t equals = std::min(part.find('='), part.size());
        const std::string_view name = part.substr(0, equals);
        double* value = name == "prompt_tokens"         ? &out.prompt
                        : name == "output_tokens"       ? &out.output
                        : name == "prompt_tokens_stdev" ? &out.prompt_deviation
                        : name == "output_tokens_stdev" ? &out.output_deviation
                                                        : nullptr;
        if (value != nullptr &&
            (!parse_number(part.substr(std::min(equals + 1, part.size())), *value) || *value < 0 || *value > 1e9)) {
            throw ConfigError({flags.error(
                "data_spec", fmt::format("'{}' must be a number of tokens, as in prompt_tokens=256,output_tokens=128",
                                         printable(std::string(part), 60)))});
        }
    }
    return out;
}

// What the requests of a data set have, by the flags: those of the data set go before the general ones.
struct Lengths {
    DataSet set;
    double spread = 0;  ///< of a uniform distribution
    bool prompt_given = false, output_given = false;
    double prompt_deviation = 0, output_deviation = 0;  ///< of a lognormal distribution, over the mean
};

Lengths lengths_of(GivenFlags& flags, const LoadClient& client, const DataDirectory& data) {
    std::string name = flags.text("data_set");
    const std::string path = flags.text("data_path");
    name = name.empty() ? client.data_set : name;
    if (name.rfind("random", 0) == 0 || name == "image") {
        name = "random";  // the texts are others, the lengths are not
    }
    const bool random_given = flags.given("input.random") || flags.given("output.random");
    if (!flags.given("data_set") && random_given) {
        name = "random";
    } else if (!flags.given("data_set") && !path.empty()) {
        const auto letter = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
        const std::string known = "sharegpt";
        name =
            std::search(path.begin(), path.end(), known.begin(), known.end(), letter) != path.end() ? known : "custom";
    }
    Lengths out;
    const std::vector<DataSet> sets = data_sets(data);
    const auto row = std::find_if(sets.begin(), sets.end(), [&](const DataSet& set) { return set.name == name; });
    const auto other = std::find_if(sets.begin(), sets.end(), [](const DataSet& set) { return set.name == "other"; });
    if (row == sets.end() && other == sets.end()) {
        throw ConfigError("workloads/data/flags/data_sets.csv has no row 'other'");
    }
    out.set = row != sets.end() ? *row : *other;
    out.set.name = name;
    const auto given = [&](const char* what) {
        const auto own = flags.whole(fmt::format("{}.{}", what, name));
        return own ? own : flags.whole(fmt::format("{}.any", what));
    };
    if (const auto tokens = given("input")) {
        out.set.prompt = static_cast<double>(*tokens);
        out.prompt_given = true;
    }
    if (const auto tokens = given("output")) {
        out.set.output = static_cast<double>(*tokens);
        out.output_given = true;
    }
    if (const LengthSpec spec = length_spec(flags); spec.prompt > 0 || spec.output > 0) {
        out.set.prompt = spec.prompt > 0 ? spec.prompt : out.set.prompt;
        out.set.output = spec.output > 0 ? spec.output : out.set.output;
        out.prompt_given = spec.prompt > 0;
        out.output_given = spec.output > 0;
        out.prompt_deviation = spec.prompt > 0 ? spec.prompt_deviation / spec.prompt : 0;
        out.output_deviation = spec.output > 0 ? spec.output_deviation / spec.output : 0;
    }
    const auto deviation = [&](const char* key, double mean, double otherwise) {
        const auto tokens = flags.number(key);
        return tokens && mean > 0 ? *tokens / mean : otherwise;
    };
    out.prompt_deviation = deviation("deviation.input", out.set.prompt, out.prompt_deviation);
    out.output_deviation = deviation("deviation.output", out.set.output, out.output_deviation);
    const std::string prefix = fmt::format("prefix.{}", name);
    if (flags.given(prefix)) {
        out.set.common = flags.whole(prefix, 1 << 20, true).value_or(0);
    }
    if (const auto kinds = flags.whole(fmt::format("kinds.{}", name), 1 << 20)) {
        out.set.kinds = *kinds;
    }
    if (name == "sonnet") {  // whose input length has the prefix in it
        out.set.prompt = std::max(1.0, out.set.prompt - static_cast<double>(out.set.common));
    }
    if (name == "random") {
        const double ratio = flags.number("range.random").value_or(0);
        if (client.shorter) {
            out.spread = ratio < 1 ? (1 - ratio) / (1 + ratio) : 0;
            out.set.prompt *= (1 + std::min(ratio, 1.0)) / 2;
            out.set.output *= (1 + std::min(ratio, 1.0)) / 2;
        } else {
            out.spread = ratio < 1 ? ratio : 0;
        }
    }
    return out;
}

void set_arrivals(GivenFlags& flags, const LoadClient& client, double output, ScenarioKeys& keys, ImportNotes& notes) {
    for (const char* key : {"rate", "clients", "count"}) {
        if (const std::string kept = flags.keep_first(key); !kept.empty()) {
            notes.assumed(kept);
        }
    }
    const std::string written = flags.text("rate");
    const std::string type = flags.text("rate_type");
    double rate = written == "-1" || type == "throughput" || type == "synchronous" || type == "sweep"
                      ? 0
                      : flags.number("rate").value_or(0);  // 0: all at once
    std::optional<std::int64_t> clients = flags.whole("clients", 1 << 20);
    if (type == "concurrent") {
        clients = flags.whole("rate", 1 << 20).value_or(1);
        rate = 0;
    } else if (type == "synchronous" || type == "sweep") {
        clients = 1;
        if (type == "sweep") {
            notes.assumed("one request at a time, the first load of a sweep (--rate-type)");
        }
    } else if (type == "constant" || type == "poisson" || type == "async") {
        if (rate <= 0) {
            throw ConfigError(
                {flags.error("rate_type", fmt::format("requests that arrive as '{}' need a --rate", type))});
        }
        if (type == "constant") {
            notes.assumed("Poisson arrivals where the client's are evenly spaced");
        }
    } else if (!type.empty() && type != "throughput") {
        throw ConfigError({flags.error(
            "rate_type", fmt::format("'{}' is none of synchronous, concurrent, throughput, constant, poisson and sweep",
                                     printable(type, 60)))});
    }
    if (!clients && rate <= 0 && client.clients > 0) {
        clients = client.clients;
    }
    // A request takes about so long: what tells a limit on requests in flight that binds from one that does not.
    const double seconds = 0.5 + 0.02 * output;
    if (clients && (rate <= 0 || rate * seconds > static_cast<double>(*clients))) {
        keys.set("requests.arrivals", "closed");
        keys.set("requests.clients", std::to_string(*clients));
        if (rate > 0) {
            notes.assumed(fmt::format(
                "a closed loop: {:g} requests per second is more than {} in flight at a time allow", rate, *clients));
        }
    } else if (rate <= 0) {
        keys.set("requests.arrivals", "at-once");
    } else {
        if (clients) {
            notes.assumed(fmt::format("arrivals at {:g} per second: fewer than {} requests are in flight at a time",
                                      rate, *clients));
        }
        const double shape = flags.number("burstiness").value_or(1);
        if (shape > 0 && shape != 1) {
            keys.set("requests.arrivals", "gamma");
            keys.set("requests.burstiness", fmt::format("{:.4g}", std::clamp(1 / std::sqrt(shape), 0.01, 100.0)));
        }
        keys.set("requests.rate", fmt::format("{:g}", std::min(rate, 1e7)));
    }
    keys.set("requests.count", std::to_string(flags.whole("count", 1'000'000'000).value_or(1000)));
}

// ttft:500 tpot:50, in milliseconds.
void set_objectives(GivenFlags& flags, ScenarioKeys& keys, ImportNotes& notes) {
    const std::string text = flags.text("goodput");
    for (const std::string_view part : split(text, ' ')) {
        const std::size_t colon = std::min(part.find(':'), part.size());
        const std::string name(part.substr(0, colon));
        const std::string value(part.substr(std::min(colon + 1, part.size())));
        double number = 0;
        if (name == "e2el") {
            notes.left_out("a limit on the whole request's time (e2el), which no objective here has");
        } else if (!text.empty()) {
            if ((name != "ttft" && name != "tpot") || !parse_number(value, number) || number <= 0) {
                throw ConfigError({flags.error(
                    "goodput", fmt::format("'{}' must be ttft:MS, tpot:MS or e2el:MS", printable(part, 60)))});
            }
            keys.set("slo." + name, fmt::format("{:g} ms", number));
        }
    }
}

}  // namespace

const std::vector<LoadClient>& load_clients() {
    static const std::vector<LoadClient> kClients = {
        {{"vllm bench serve", "benchmark_serving.py", "vllm.benchmarks.serve",
          "tensorrt_llm.serve.scripts.benchmark_serving"},
         "vllm-bench",
         false,
         "random"},
        {{"sglang.bench_serving", "bench_serving.py"}, "sglang-bench", true, "sharegpt"},
        {{"aiperf profile", "genai-perf profile"}, "aiperf", false, "random", 1},
        {{"guidellm benchmark", "guidellm benchmark run"}, "guidellm", false, "random", 1},
        {{"evalscope perf"}, "evalscope", false, "other", 1},
        {{"token_benchmark_ray.py"}, "llmperf", false, "random", 10},
    };
    return kClients;
}

void set_load(GivenFlags* flags, const LoadClient* client, std::int64_t longest, const DataDirectory& data,
              ScenarioKeys& keys, ImportNotes& notes) {
    if (flags == nullptr || client == nullptr) {
        notes.assumed(
            "1 request per second (requests.rate), prompts of 1,024 and outputs of 256 tokens on average "
            "(requests.prompt, requests.output): the text has no load generator");
        keys.set("requests.rate", "1");
        const double scale = longest == 0 ? 1 : std::min(1.0, static_cast<double>(longest) / 2560);
        keys.set("requests.prompt", fmt::format("{{kind: lognormal, mean: {:.0f}}}", std::max(1.0, 1024 * scale)));
        keys.set("requests.output", fmt::format("{{kind: lognormal, mean: {:.0f}}}", std::max(1.0, 256 * scale)));
        if (longest > 0) {
            keys.set("requests.longest", std::to_string(longest));
        }
        return;
    }
    const Lengths of = lengths_of(*flags, *client, data);
    const double spread = of.spread;
    const bool assumed = !of.set.source.empty();
    if (assumed && !(of.prompt_given && of.output_given)) {
        notes.assumed(fmt::format(
            "{}{} tokens on average, for the data set '{}': {}",
            of.prompt_given ? "" : fmt::format("prompts of {:g}{}", of.set.prompt, of.output_given ? "" : " and "),
            of.output_given ? "" : fmt::format("outputs of {:g}", of.set.output), printable(of.set.name, 60),
            of.set.source));
    }
    set_arrivals(*flags, *client, of.set.output, keys, notes);
    const auto distribution = [&](double mean, bool given, double deviation) {
        return spread > 0 ? lengths(mean, spread, "uniform")
                          : lengths(mean, given ? deviation : of.set.spread, "lognormal");
    };
    keys.set("requests.prompt", distribution(of.set.prompt, of.prompt_given, of.prompt_deviation));
    keys.set("requests.output", distribution(of.set.output, of.output_given, of.output_deviation));
    if (of.set.common > 0) {
        keys.set("requests.common", std::to_string(of.set.common));
        keys.set("requests.common_kinds", of.set.kinds > 1 ? std::to_string(of.set.kinds) : "");
    }
    if (longest > 0) {
        const double least =
            (of.set.prompt + of.set.output) * (1 - std::min(spread, 1.0)) + static_cast<double>(of.set.common);
        const bool fixed = spread > 0 || (of.prompt_given && of.output_given) || of.set.spread <= 0;
        if (fixed && least > static_cast<double>(longest)) {
            throw ConfigError({flags->error(
                fmt::format("input.{}", of.set.name),
                fmt::format(
                    "requests of {:g} tokens with their answers are longer than the {} that the server takes: it "
                    "refuses every one",
                    of.set.prompt + of.set.output + static_cast<double>(of.set.common), longest))});
        }
        keys.set("requests.longest", fixed && spread <= 0 ? "" : std::to_string(longest));
    }
    set_objectives(*flags, keys, notes);
}

}  // namespace orrery::imports
