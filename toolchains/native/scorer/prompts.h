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
    //
    // images: how many stand before the text of the last message, each as the marker.
    rendered_prompt render(const item & from, size_t images = 0, const std::string & marker = {});

  private:
    const common_chat_templates * templates(const std::string & name);

    const llama_model *                              model_;
    std::map<std::string, common_chat_templates_ptr> loaded_;
};
