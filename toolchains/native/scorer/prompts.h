// From an item's prompt or messages to the text that the model is given.

#pragma once

#include "chat.h"
#include "item.h"
#include "llama.h"
#include "thoughts.h"

#include <map>
#include <string>

struct rendered_prompt {
    std::string  text;
    thought_tags tags;
};

class prompts {
  public:
    explicit prompts(const llama_model * model) : model_(model) {}

    // Throws item_error if the item or its template is at fault.
    rendered_prompt render(const item & from);

  private:
    const common_chat_templates * templates(const std::string & name);

    const llama_model *                              model_;
    std::map<std::string, common_chat_templates_ptr> loaded_;
};
