#include "text.h"

// Table 3-7 of the Unicode standard: which bytes may follow the first one.
static size_t expected_length(unsigned char first, unsigned char & low, unsigned char & high) {
    low  = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (first < 0x80) {
        return 1;
    }
    if (first < 0xC2 || first > 0xF4) {
        return 0;
    }
    return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

clean_text cleaned(const std::string & bytes, const std::vector<size_t> & ends) {
    clean_text found;
    found.ends.reserve(ends.size());
    size_t begin = 0;
    while (begin < bytes.size()) {
        unsigned char low, high;
        const size_t  length = expected_length(static_cast<unsigned char>(bytes[begin]), low, high);
        size_t        end    = begin + 1;
        while (end < bytes.size() && end < begin + length) {
            const auto byte = static_cast<unsigned char>(bytes[end]);
            if (byte < low || byte > high) {
                break;
            }
            low  = 0x80;
            high = 0xBF;
            end++;
        }
        const bool is_whole = length > 0 && end == begin + length;
        if (!is_whole && length > 0 && end == bytes.size()) {
            break;
        }
        // Only the next byte shows that a character was broken off.
        const size_t known_from = is_whole || length == 0 ? end : end + 1;
        while (found.ends.size() < ends.size() && ends[found.ends.size()] < known_from) {
            found.ends.push_back(found.text.size());
        }
        found.text += is_whole ? bytes.substr(begin, length) : "\xEF\xBF\xBD";
        begin = end;
    }
    found.ends.resize(ends.size(), found.text.size());
    return found;
}
