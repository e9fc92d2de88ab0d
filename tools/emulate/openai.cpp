#include "tools/emulate/openai.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace orrery::emulate {

namespace {

using Json = nlohmann::json;

constexpr double kMostTokens = 1 << 24;  // of a prompt or an output

std::string text_of(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A member that is given; null stands for none.
const Json* given(const Json& body, const char* name) {
    const auto found = body.find(name);
    return found == body.end() || found->is_null() ? nullptr : &*found;
}

bool flag(const Json& body, const char* name) {
    const Json* const value = given(body, name);
    if (value != nullptr && !value->is_boolean()) {
        throw ApiError{400, fmt::format("'{}' must be true or false", name), name};
    }
    return value != nullptr && value->get<bool>();
}

std::optional<std::uint32_t> number(const Json& body, const char* name) {
    const Json* const value = given(body, name);
    if (value == nullptr) {
        return std::nullopt;
    }
    const double count = value->is_number() ? value->get<double>() : 0;
    if (!(count >= 1 && count <= kMostTokens) || count != std::floor(count)) {
        throw ApiError{400, fmt::format("'{}' must be a whole number from 1 on", name), name};
    }
    return static_cast<std::uint32_t>(count);
}

// Members that may have one value alone here.
void refuse_other(const Json& body, const char* name, const Json& only, const char* why) {
    const Json* const value = given(body, name);
    if (value != nullptr && *value != only) {
        throw ApiError{400, fmt::format("'{}' is {} here: {}", name, text_of(only), why), name};
    }
}

void add_content(const Json& content, Prompt& prompt) {
    if (content.is_string()) {
        prompt.add_text(content.get_ref<const std::string&>());
        return;
    }
    if (!content.is_array()) {
        throw ApiError{400, "the 'content' of a message must be a text or a list of parts", "messages"};
    }
    for (const Json& part : content) {
        const Json* const text = part.is_object() ? given(part, "text") : nullptr;
        if (text == nullptr || !text->is_string()) {
            throw ApiError{400, "the parts of a message's 'content' must be of type 'text'", "messages"};
        }
        prompt.add_text(text->get_ref<const std::string&>());
    }
}

void add_messages(const Json& messages, Prompt& prompt) {
    if (!messages.is_array() || messages.empty()) {
        throw ApiError{400, "'messages' must be a list of one message or more", "messages"};
    }
    for (const Json& message : messages) {
        const Json* const role = message.is_object() ? given(message, "role") : nullptr;
        if (role == nullptr || !role->is_string()) {
            throw ApiError{400, "each message must have a 'role' and a 'content'", "messages"};
        }
        prompt.open_message(role->get_ref<const std::string&>());
        if (const Json* const content = given(message, "content"); content != nullptr) {
            add_content(*content, prompt);
        }
        prompt.close_message();
    }
    prompt.open_message("assistant");
}

void read_prompt(const Json& body, bool chat, Prompt& prompt) {
    const char* const name = chat ? "messages" : "prompt";
    const Json* const value = given(body, name);
    if (value == nullptr) {
        throw ApiError{400, fmt::format("'{}' is needed", name), name};
    }
    if (chat) {
        return add_messages(*value, prompt);
    }
    if (value->is_string()) {
        prompt.add_text(value->get_ref<const std::string&>());
    } else if (value->is_array() && value->size() == 1 && (value->front().is_string() || value->front().is_array())) {
        return read_prompt({{"prompt", value->front()}}, false, prompt);
    } else if (value->is_array()) {
        for (const Json& id : *value) {
            if (!id.is_number_unsigned() || id.get<std::uint64_t>() > 0xFFFFFFFFU) {
                throw ApiError{400,
                               "'prompt' must be one text or one list of token ids: one answer a request is emulated",
                               "prompt"};
            }
            prompt.add_id(id.get<std::uint64_t>());
        }
    } else {
        throw ApiError{400, "'prompt' must be a text or a list of token ids", "prompt"};
    }
    if (prompt.tokens() == 0) {
        throw ApiError{400, "'prompt' must have one token or more", "prompt"};
    }
}

}  // namespace

std::string error_body(const ApiError& error) {
    const char* const type = error.status == 404   ? "NotFoundError"
                             : error.status == 401 ? "AuthenticationError"
                             : error.status >= 500 ? "InternalServerError"
                                                   : "BadRequestError";
    return text_of({{"error",
                     {{"message", error.message},
                      {"type", type},
                      {"param", error.param.empty() ? Json() : Json(error.param)},
                      {"code", error.status}}}});
}

struct Body::Parsed {
    Json json;
};

Body::Body(const std::string& text) : parsed_(new Parsed{Json::parse(text, nullptr, false)}) {
    if (!parsed_->json.is_object()) {
        throw ApiError{400, "the body must be one JSON object"};
    }
}

Body::~Body() = default;

std::optional<std::string> Body::model() const {
    const Json* const model = given(parsed_->json, "model");
    return model == nullptr ? std::nullopt
                            : std::optional(model->is_string() ? model->get<std::string>() : text_of(*model));
}

bool Body::has_messages() const {
    return given(parsed_->json, "messages") != nullptr;
}

void Body::add_prompt(bool chat, Prompt& prompt) const {
    read_prompt(parsed_->json, chat, prompt);
}

Ask Body::ask(bool chat) const {
    const Json& body = parsed_->json;
    constexpr const char* kOne = "one answer a request is emulated";
    constexpr const char* kNoLogs = "an emulated model has no probabilities";
    refuse_other(body, "n", 1, kOne);
    refuse_other(body, "best_of", 1, kOne);
    refuse_other(body, "echo", false, "answers hold no prompt");
    refuse_other(body, "use_beam_search", false, kOne);
    if (chat) {
        refuse_other(body, "logprobs", false, kNoLogs);
    } else if (given(body, "logprobs") != nullptr) {
        throw ApiError{400, fmt::format("'logprobs' must be left out: {}", kNoLogs), "logprobs"};
    }
    (void)flag(body, "ignore_eos");
    Ask out;
    out.chat = chat;
    out.stream = flag(body, "stream");
    if (const Json* const options = given(body, "stream_options"); options != nullptr) {
        if (!options->is_object() || !out.stream) {
            throw ApiError{400, "'stream_options' is an object beside 'stream': true", "stream_options"};
        }
        out.usage = flag(*options, "include_usage");
    }
    const std::optional<std::uint32_t> older = number(body, "max_tokens");
    out.most = chat ? number(body, "max_completion_tokens") : std::nullopt;
    if (!out.most) {
        out.most = older;
    }
    if (const auto least = number(body, "min_tokens"); least && out.most && *least > *out.most) {
        throw ApiError{400, "'min_tokens' must not be above 'max_tokens'", "min_tokens"};
    }
    if (const Json* const user = given(body, "user"); user != nullptr && user->is_string()) {
        out.user = user->get<std::string>();
    }
    return out;
}

Writer::Writer(const Ask& ask, const std::string& model, std::uint64_t number, std::int64_t created,
               std::uint64_t prompt_tokens)
    : ask_(ask),
      head_(fmt::format(R"({{"id":"{}-{:016x}","object":"{}","created":{},"model":{})", ask.chat ? "chatcmpl" : "cmpl",
                        number,
                        !ask.chat    ? "text_completion"
                        : ask.stream ? "chat.completion.chunk"
                                     : "chat.completion",
                        created, text_of(model))),
      prompt_tokens_(prompt_tokens) {}

std::string Writer::opening() const {
    return ask_.chat ? fmt::format(
                           "data: {},\"choices\":[{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"content\":"
                           "\"\"}},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n",
                           head_)
                     : "";
}

std::string Writer::event(std::uint32_t from, std::uint32_t to, const char* finish) const {
    const std::string text = answer_text(from, to);
    const std::string reason = finish == nullptr ? "null" : fmt::format("\"{}\"", finish);
    return fmt::format(
        "data: {},\"choices\":[{{\"index\":0,{},\"logprobs\":null,\"finish_reason\":{}}}]}}\n\n", head_,
        ask_.chat ? fmt::format("\"delta\":{{\"content\":\"{}\"}}", text) : fmt::format("\"text\":\"{}\"", text),
        reason);
}

std::string Writer::closing(std::uint32_t tokens) const {
    const std::string last = ask_.usage ? fmt::format("data: {},\"choices\":[],{}}}\n\n", head_, usage(tokens)) : "";
    return last + "data: [DONE]\n\n";
}

std::string Writer::whole(std::uint32_t tokens, const char* finish) const {
    const std::string text = answer_text(0, tokens);
    return fmt::format("{},\"choices\":[{{\"index\":0,{},\"logprobs\":null,\"finish_reason\":\"{}\"}}],{}}}", head_,
                       ask_.chat ? fmt::format("\"message\":{{\"role\":\"assistant\",\"content\":\"{}\"}}", text)
                                 : fmt::format("\"text\":\"{}\"", text),
                       finish, usage(tokens));
}

std::string Writer::usage(std::uint32_t tokens) const {
    return fmt::format("\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{}}}",
                       prompt_tokens_, tokens, prompt_tokens_ + tokens);
}

}  // namespace orrery::emulate
