#include "output_rest.h"

#include "nn/nn-config-builder.hpp"

#include <algorithm>
#include <fcntl.h>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

namespace {

const char         MARK[]     = "armload-output-1"; // the last bytes of such a file
const NnSize       MARK_BYTES = sizeof(MARK) - 1;
const char * const OUTPUT     = "final_matmul_logits";
const char * const REST       = "final_matmul_rest";

class mapped {
  public:
    mapped(const std::string & path, NnSize size) : size_(size) {
        const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        data_          = file < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
        if (file >= 0) {
            close(file);
        }
        if (data_ == MAP_FAILED) {
            throw std::runtime_error(path + ": cannot be read");
        }
    }
    ~mapped() { munmap(data_, size_); }
    mapped(const mapped &)             = delete;
    mapped & operator=(const mapped &) = delete;

    NnByte * at(NnSize offset) const { return (NnByte *) data_ + offset; }

  private:
    void * data_;
    NnSize size_;
};

NnUint buffer_called(const NnNodeConfig & node, const std::string & name) {
    for (NnUint i = 0; i < node.nBuffers; i++) {
        if (name == node.buffers[i].name) {
            return i;
        }
    }
    throw std::runtime_error("distributed-llama has no buffer " + name);
}

NnUint add_buffer(NnNodeConfig & node, const char * name, NnSize3D size) {
    NnBufferConfig * const before = node.buffers;
    node.buffers                  = new NnBufferConfig[node.nBuffers + 1];
    std::copy(before, before + node.nBuffers, node.buffers);
    delete[] before;
    node.buffers[node.nBuffers] = { cloneString(name), size };
    return node.nBuffers++;
}

// Operations lie in an array of their exact number.
template <typename T>
void insert_op(NnSegmentConfig & segment, NnUint place, NnOpCode code, const char * name, NnPointerConfig input,
               NnPointerConfig output, NnSize3D weight, T config) {
    NnSegmentConfigBuilder builder;
    builder.addOp(code, name, 0, input, output, weight, config);
    const NnSegmentConfig one    = builder.build();
    NnOpConfig * const    before = segment.ops;
    segment.ops                  = new NnOpConfig[segment.nOps + 1];
    std::copy(before, before + place, segment.ops);
    segment.ops[place] = one.ops[0];
    std::copy(before + place, before + segment.nOps, segment.ops + place + 1);
    segment.nOps++;
    delete[] before;
    delete[] one.ops;
}

NnUint op_called(const NnSegmentConfig & segment, const std::string & name) {
    for (NnUint i = 0; i < segment.nOps; i++) {
        if (name == segment.ops[i].name) {
            return i;
        }
    }
    throw std::runtime_error("distributed-llama has no operation " + name);
}

} // namespace

output_rest::output_rest(const std::string & path, LlmHeader & header) : path_(path) {
    const NnSize size = size2D(F_Q40, header.dim, header.vocabSize).nBytes;
    if (header.weightType != F_Q40 || header.fileSize < size + MARK_BYTES) {
        return;
    }
    const mapped file(path, header.fileSize);
    if (!std::equal(MARK, MARK + MARK_BYTES, (const char *) file.at(header.fileSize - MARK_BYTES))) {
        return;
    }
    size_ = size;
    header.fileSize -= size + MARK_BYTES;
    at_ = header.fileSize;
}

output_rest::output_rest(const LlmHeader & header, bool is_there)
    : size_(is_there ? size2D(F_Q40, header.dim, header.vocabSize).nBytes : 0) {}

void output_rest::add_to(LlmNet & net, NnUint nodes) const {
    for (NnUint node = 0; size_ > 0 && node < nodes; node++) {
        NnNodeConfig &    config  = net.nodeConfigs[node];
        NnSegmentConfig & segment = config.segments[config.nSegments - 1];
        const NnUint      logits  = buffer_called(config, "lg");
        const NnUint      rest    = add_buffer(config, "lg_rest", config.buffers[logits].size);
        const NnUint      place   = op_called(segment, OUTPUT);
        const NnOpConfig  output  = segment.ops[place];
        insert_op(segment, place + 1, OP_MATMUL, REST, output.input, pointerBatchConfig(SRC_BUFFER, rest),
                  output.weightSize, NnMatmulOpConfig());
        insert_op(segment, place + 2, OP_MERGE_ADD, "final_add_rest", pointerBatchConfig(SRC_BUFFER, rest),
                  output.output, size0(), NnMergeAddOpCodeConfig());
    }
}

void output_rest::load(NnRootWeightLoader & loader, const LlmNet & net) const {
    if (size_ > 0) {
        const mapped file(path_, at_ + size_);
        NnRowMatmulSlice slice = net.wclsSlice;
        loader.loadRowMatmulSlices(REST, 0, 0, &slice, file.at(at_));
    }
}
