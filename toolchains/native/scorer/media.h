// Images that stand before the text of an item's last message.

#pragma once

#include "engine.h"
#include "task.h"

#include <memory>
#include <string>
#include <vector>

struct media_options {
    std::string projector;   // empty without --mmproj
    std::string folder;      // of the images
    std::string most_tokens; // of an image, a number; empty for the projector's own limit
};

// A prompt whose images, and the text before them, were processed.
struct seen_prompt {
    std::vector<llama_token> before;        // the last image and what stands before its end, -1 for an image's
    std::vector<llama_token> rest;          // what follows the last image
    llama_pos                length;        // of what lies in the cache, in positions
    int32_t                  tokens;        // of the whole prompt
    int32_t                  more_cells;    // that it takes, beyond its positions
};

// A part of an image, or of a sound's spectrum, as the encoder takes it: rows of columns in channels.
struct encoder_input {
    std::vector<float>   values;
    std::vector<int64_t> shape; // columns, rows, channels
};

// An image as the model reads it: a row for each of its tokens.
struct image_rows {
    std::vector<float>         values;
    size_t                     columns;
    std::vector<encoder_input> inputs;
};

class media {
  public:
    media()                          = default;
    virtual ~media()                 = default;
    media(const media &)             = delete;
    media & operator=(const media &) = delete;

    // What stands for an image in a text.
    virtual std::string marker() const = 0;

    // Encodes the images, and processes them with the text before them.
    //
    // Throws item_error if one cannot be read, or the prompt exceeds the context.
    virtual seen_prompt look(const std::string & text, const std::vector<std::string> & images,
                             llama_seq_id id) = 0;

    // All parts of an image, one after the other. Throws item_error if it cannot be read.
    virtual image_rows encode(const std::string & image) = 0;
};

// The images that an item names. Throws item_error if the model sees none.
inline std::vector<std::string> images_of(const item & from, const media * eyes) {
    auto images = from.get<std::vector<std::string>>("images", {});
    if (!images.empty() && eyes == nullptr) {
        throw item_error("images: without --mmproj, the model sees none");
    }
    return images;
}

// The embeddings of an image, which take no pass through the model.
class image_embeddings : public task {
  public:
    // Throws item_error if the item is at fault, or there is no file for the rows.
    image_embeddings(item from, media * eyes, logits_file * file);

    std::vector<sequence *> waiting() override { return {}; }

  protected:
    void read(const sequence &, const float *) override {}
    bool is_finished() const override { return true; }
    json answer() const override;

  private:
    size_t  rows_;
    size_t  columns_;
    int64_t offset_bytes_;
    json    inputs_ = json::array();
};

// Throws engine_error.
std::unique_ptr<media> open_media(const engine & with, const common_params & wanted,
                                  const media_options & options);
