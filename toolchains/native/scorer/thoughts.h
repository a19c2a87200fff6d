// What encloses a model's thoughts.

#pragma once

#include "chat.h"
#include "item.h"

#include <string>

struct thought_tags {
    std::string begin;
    std::string end;
    std::string lead;   // between the end of the thoughts and the answer's tag
    std::string answer; // tag before the answer; empty in most families

    // Of the chat template, as llama.cpp read it; where it found none, of the families known here.
    static thought_tags of(const std::string & chat_template, const common_chat_params & read);

    // Whether a text ends inside a thought.
    bool are_open(const std::string & text, bool were_open) const;

    // What ends a thought and begins the answer.
    std::string closing() const;

    json shown() const { return { { "begin", begin }, { "end", end }, { "answer", answer } }; }
};
