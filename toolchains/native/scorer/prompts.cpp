#include "prompts.h"

#include <time.h>
#ifdef ARMLOAD_TEMPLATES_READ_CLOCK
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <chrono>
#include <cstdio>

// The date that chat templates are given, so that an answer depends neither on the day nor on the
// board's clock.
static time_t fixed_s;
static bool   is_fixed;

// Stops the calendar at noon, UTC, of a date such as 2026-01-31; returns false if it is none.
static bool fix_clock(const char * date) {
    tm   noon    = {};
    char rest;
    noon.tm_hour = 12;
    is_fixed = sscanf(date, "%4d-%2d-%2d%c", &noon.tm_year, &noon.tm_mon, &noon.tm_mday, &rest) == 3;
    if (is_fixed) {
        noon.tm_year -= 1900;
        noon.tm_mon -= 1;
        tm normal = noon;
        fixed_s   = timegm(&normal);
        is_fixed  = normal.tm_mon == noon.tm_mon && normal.tm_mday == noon.tm_mday;
    }
    return is_fixed;
}

// Takes the place of the C library's, which llama.cpp asks when a template calls strftime_now.
#ifndef __THROW
#define __THROW // which some C libraries declare it with
#endif
extern "C" time_t time(time_t * result) __THROW {
    timespec now = {};
    now.tv_sec   = fixed_s;
    if (!is_fixed) {
        clock_gettime(CLOCK_REALTIME, &now);
    }
    if (result != nullptr) {
        *result = now.tv_sec;
    }
    return now.tv_sec;
}

#ifdef ARMLOAD_TEMPLATES_READ_CLOCK
// As above, for a llama.cpp that asks through std::chrono.
extern "C" int clock_gettime(clockid_t clock, timespec * result) __THROW {
    if (is_fixed && clock == CLOCK_REALTIME) {
        *result = { fixed_s, 0 };
        return 0;
    }
    return static_cast<int>(syscall(SYS_clock_gettime, clock, result));
}
#endif

static std::vector<common_chat_msg> messages_of(const item & from) {
    if (!from.has("messages")) {
        common_chat_msg only;
        only.role    = "user";
        only.content = from.get<std::string>("prompt");
        return { only };
    }
    if (from.has("prompt")) {
        throw item_error("prompt and messages: only one of them can be given");
    }
    std::vector<common_chat_msg> found;
    for (const json & each : from.get<std::vector<json>>("messages")) {
        common_chat_msg message;
        try {
            message.role    = each.at("role").get<std::string>();
            message.content = each.at("content").get<std::string>();
        } catch (const json::exception &) {
            throw item_error("messages: each must have the texts role and content");
        }
        found.push_back(message);
    }
    if (found.empty()) {
        throw item_error("messages: there is none");
    }
    return found;
}

static std::string joined(const std::vector<common_chat_msg> & messages) {
    std::string text;
    for (const common_chat_msg & each : messages) {
        text += (text.empty() ? "" : "\n\n") + each.content;
    }
    return text;
}

namespace {

// For as long as it exists, templates are given an item's date: by the functions that they call for
// it, and by the variables that llama.cpp sets to it.
class item_date {
  public:
    item_date(const item & from, common_chat_templates_inputs & inputs) {
        const auto date = from.get<std::string>("date", "");
        if (date.empty()) {
            return;
        }
        if (!fix_clock(date.c_str())) {
            throw item_error("date: must be a date such as 2026-01-31");
        }
        const time_t now = time(nullptr);
        inputs.now       = std::chrono::system_clock::from_time_t(now);
        inputs.chat_template_kwargs.emplace("date_string", formatted(now, "%d %b %Y"));
        inputs.chat_template_kwargs.emplace("datetime", formatted(now, "%b %d %Y"));
    }
    item_date(const item_date &) = delete;
    ~item_date() { is_fixed = false; }

  private:
    static std::string formatted(time_t now, const char * format) {
        char text[32];
        strftime(text, sizeof(text), format, gmtime(&now));
        return json(text).dump();
    }
};

}  // namespace

rendered_prompt prompts::render(const item & from, size_t images, const std::string & marker) {
    common_chat_templates_inputs inputs;
    inputs.messages = messages_of(from);
    for (; images > 0; images--) {
        inputs.messages.back().content.insert(0, marker);
    }
    const auto name = from.get<std::string>("template", from.has("messages") ? "model" : "none");
    if (name == "none") {
        const char * own = llama_model_chat_template(model_, nullptr);
        return { joined(inputs.messages), thought_tags::of(own == nullptr ? "" : own, {}) };
    }
    if (name != "model" && name != "chatml") {
        throw item_error("template: must be model, chatml or none");
    }
    const json arguments = from.get<json>("template_arguments", json::object());
    if (!arguments.is_object()) {
        throw item_error("template_arguments: must be an object");
    }
    for (const auto & [key, value] : arguments.items()) {
        inputs.chat_template_kwargs[key] = value.dump();
    }
    // llama.cpp keeps this one beside the others, as its server does.
    const auto thinking    = inputs.chat_template_kwargs.find("enable_thinking");
    inputs.enable_thinking = thinking == inputs.chat_template_kwargs.end() || thinking->second != "false";
    // Tokenizing adds these.
    const llama_vocab * vocab = llama_model_get_vocab(model_);
    inputs.add_bos            = llama_vocab_get_add_bos(vocab);
    inputs.add_eos            = llama_vocab_get_add_eos(vocab);
    const common_chat_templates * wanted = templates(name);
    const item_date               date(from, inputs);
    try {
        const auto read = common_chat_templates_apply(wanted, inputs);
        return { read.prompt, thought_tags::of(common_chat_templates_source(wanted), read) };
    } catch (const std::exception & error) {
        throw item_error(std::string("the chat template refuses these messages: ") + error.what());
    }
}

const common_chat_templates * prompts::templates(const std::string & name) {
    common_chat_templates_ptr & loaded = loaded_[name];
    if (loaded) {
        return loaded.get();
    }
    const char * own = llama_model_chat_template(model_, nullptr);
    if (name == "model" && own == nullptr) {
        throw item_error("the model has no chat template; use the template chatml or none");
    }
    try {
        loaded = common_chat_templates_init(model_, name == "model" ? "" : name);
    } catch (const std::exception & error) {
        throw item_error(std::string("the model's chat template is invalid: ") + error.what());
    }
    if (name == "model") {
        // Older releases go on with ChatML if they cannot parse the model's own.
        const std::string used = common_chat_templates_source(loaded.get());
        if (used != own && used == common_chat_templates_source(templates("chatml"))) {
            loaded.reset();
            throw item_error("this llama.cpp cannot read the model's chat template");
        }
    }
    return loaded.get();
}
