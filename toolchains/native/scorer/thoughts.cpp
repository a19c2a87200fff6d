#include "thoughts.h"

struct family {
    const char * sign; // in the chat template
    thought_tags tags;
};

// The first that fits counts: some templates name the tags of a second family, too.
static const family FAMILIES[] = {
    { "<|channel|>analysis",
      { "<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant", "<|channel|>final<|message|>" } },
    { " to=self<|message|>", { " to=self<|message|>", "<|eom|>", "<|start|>assistant", " to=user<|message|>" } },
    { "<|end_of_msg|>", { "<|open|>think<|sep|>", "<|close|>think<|sep|>", "", "<|open|>response<|sep|>" } },
    { "<|begin|>assistant<|think|>", { "<|think|>", "<|end|>", "<|begin|>assistant", "<|content|>" } },
    { "<|START_TEXT|>", { "<|START_THINKING|>", "<|END_THINKING|>", "", "<|START_TEXT|>" } },
    { "<|START_THINKING|>", { "<|START_THINKING|>", "<|END_THINKING|>", "", "<|START_RESPONSE|>" } },
    { "<|begin_of_thought|>", { "<|begin_of_thought|>", "<|end_of_thought|>", "\n\n", "<|begin_of_solution|>" } },
    { "Here is my thought process:", { "Here is my thought process:", "Here is my response:", "", "" } },
    { "[BEGIN FINAL RESPONSE]", { "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", "", "" } },
    { "<|channel>thought", { "<|channel>thought", "<channel|>", "", "" } },
    { "<|inner_prefix|>", { "<|inner_prefix|>", "<|inner_suffix|>", "", "" } },
    { "<unused94>", { "<unused94>", "<unused95>", "", "" } },
    { "<seed:think>", { "<seed:think>", "</seed:think>", "", "" } },
    { "<mm:think>", { "<mm:think>", "</mm:think>", "", "" } },
    { "[THINK]", { "[THINK]", "[/THINK]", "", "" } },
    { "\u25C1think\u25B7", { "\u25C1think\u25B7", "\u25C1/think\u25B7", "", "" } },
    { "<think>", { "<think>", "</think>", "", "" } },
    { "<thought>", { "<thought>", "</thought>", "", "" } },
    { "<reasoning>", { "<reasoning>", "</reasoning>", "", "" } },
};

static std::string trimmed(const std::string & text) {
    const size_t first = text.find_first_not_of(" \n\t\r");
    return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \n\t\r") + 1 - first);
}

// Releases of llama.cpp name the end once, several times, or not at all.
template <class Params> static auto named(const Params & read, int)
    -> decltype(std::pair(read.thinking_start_tag, read.thinking_end_tags.front())) {
    return { read.thinking_start_tag, read.thinking_end_tags.empty() ? "" : read.thinking_end_tags.front() };
}

template <class Params> static auto named(const Params & read, int)
    -> decltype(std::pair(read.thinking_start_tag, read.thinking_end_tag)) {
    return { read.thinking_start_tag, read.thinking_end_tag };
}

template <class Params> static std::pair<std::string, std::string> named(const Params &, long) {
    return {};
}

thought_tags thought_tags::of(const std::string & chat_template, const common_chat_params & read) {
    const auto [first, last] = named(read, 0);
    const std::string begin = trimmed(first), end = trimmed(last);
    for (const family & each : FAMILIES) {
        const bool is_named = (begin.empty() || begin == trimmed(each.tags.begin)) && (end.empty() || end == each.tags.end);
        if (is_named && chat_template.find(each.sign) != std::string::npos) {
            return each.tags;
        }
    }
    if (!begin.empty() && !end.empty()) {
        return { begin, end, "", "" };
    }
    // Of base models' prompts and of templates that do not speak of thoughts.
    return { "<think>", "</think>", "", "" };
}

bool thought_tags::are_open(const std::string & text, bool were_open) const {
    const size_t from = text.rfind(begin), to = text.rfind(end);
    if (from == std::string::npos && to == std::string::npos) {
        return were_open;
    }
    return from != std::string::npos && (to == std::string::npos || to < from);
}

std::string thought_tags::closing() const {
    return answer.empty() ? "\n" + end + "\n\n" : end + lead + answer;
}
