// armload-dllama: continues a prompt with distributed-llama, alone or with other boards, and times each step.
//
// Token ids come in, as llama.cpp's tokenizer gives them, and text goes out.

#include "app.hpp"
#include "mesh.h"
#include "node_time.h"

#include "armload_step.h"
extern "C" {
#include "armload_trace_file.h"
}

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <unistd.h>

// The command line, or a file that it names, is wrong.
struct usage_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

static const char * const USAGE =
    "armload-dllama root --model FILE --prompt FILE [OPTIONS] >TEXT\n"
    "armload-dllama worker --host ADDRESS --port PORT --key FILE [--threads N]\n"
    "armload-dllama times --model HEADER --nodes N --context N [--rest 1] [--batch N] [--threads N]\n\n"
    "  --prompt FILE    token ids: an answer of armload-score's to an item of the kind tokenize\n"
    "  --pieces FILE    the bytes of each token; without it, no text is written\n"
    "  -n N             tokens to generate (0)\n"
    "  --end IDS        tokens at which the text ends, with commas between\n"
    "  --logits FILE    rows of 32-bit floats, one for each token of the prompt\n"
    "  --context N      length of the KV cache (what the model was trained for)\n"
    "  --batch N        tokens of the prompt that go through the model at a time (32)\n"
    "  --threads N      (1)\n"
    "  --poll 0|1       ask the other nodes again and again instead of sleeping until they answer (1)\n"
    "  --workers LIST   addresses of the other nodes, with commas between\n"
    "  --peers LISTS    of each of them but the last, the addresses of those after it, as it\n"
    "                   reaches them; with semicolons between\n"
    "  --key FILE       a line that all nodes know\n\n"
    "times says how long one of so many nodes computes a token with an empty KV cache and with a full one, and the\n"
    "first batch of a prompt; of the model, the beginning of its file is enough\n";

namespace {

typedef std::map<std::string, std::string> options;

const double TIMED_S = 1.0;

options parse(int argc, char ** argv) {
    static const std::set<std::string> known = { "--model",   "--prompt", "--pieces",  "-n",       "--end",
                                                 "--logits",  "--context", "--batch",  "--threads", "--workers",
                                                 "--peers",   "--key",    "--host",    "--port",  "--poll",
                                                 "--nodes",   "--rest" };
    options found;
    for (int i = 2; i < argc; i += 2) {
        if (known.count(argv[i]) == 0) {
            throw usage_error(std::string(argv[i]) + ": there is no such option");
        }
        if (i + 1 == argc) {
            throw usage_error(std::string("the value is missing after ") + argv[i]);
        }
        found[argv[i]] = argv[i + 1];
    }
    return found;
}

std::string need(const options & given, const std::string & name) {
    const auto found = given.find(name);
    if (found == given.end() || found->second.empty()) {
        throw usage_error("use " + name);
    }
    return found->second;
}

NnUint number(const options & given, const std::string & name, NnUint usual) {
    const auto found = given.find(name);
    if (found == given.end()) {
        return usual;
    }
    char *              end;
    const unsigned long value = strtoul(found->second.c_str(), &end, 10);
    if (found->second.empty() || *end != '\0' || value > INT32_MAX) {
        throw usage_error(name + " " + found->second + ": this is not a number");
    }
    return (NnUint) value;
}

std::vector<std::string> split(const std::string & text, char separator) {
    std::vector<std::string> parts;
    std::stringstream        stream(text);
    std::string              part;
    while (std::getline(stream, part, separator)) {
        parts.push_back(part);
    }
    return parts;
}

std::string content(const std::string & path) {
    std::ifstream     file(path.c_str(), std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    if (!file) {
        throw usage_error(path + ": cannot be read");
    }
    return text.str();
}

std::string key_of(const options & given) {
    std::string key = content(need(given, "--key"));
    while (!key.empty() && isspace((unsigned char) key.back())) {
        key.pop_back();
    }
    if (key.size() < 32 || key.size() > 64) {
        throw usage_error("--key: the file must hold 32 to 64 characters");
    }
    return key;
}

// The list of the key "tokens" in a line of JSON.
std::vector<NnUint> tokens_in(const std::string & path, NnUint vocabulary) {
    static const std::string KEY = "\"tokens\":[";
    const std::string        text = content(path);
    size_t                   at   = text.find(KEY);
    if (at == std::string::npos) {
        throw usage_error(path + ": there are no tokens in it: " + text.substr(0, 200));
    }
    std::vector<NnUint> tokens;
    for (at += KEY.size(); at < text.size() && text[at] != ']';) {
        char *              end;
        const unsigned long token = strtoul(&text[at], &end, 10);
        if (end == &text[at] || token >= vocabulary) {
            throw usage_error(path + ": this prompt is not of this model: it has " +
                              std::to_string(vocabulary) + " tokens");
        }
        tokens.push_back((NnUint) token);
        at = (size_t) (end - text.data());
        at += text[at] == ',';
    }
    if (tokens.empty()) {
        throw usage_error(path + ": the prompt is empty");
    }
    return tokens;
}

// A number of 32 bits and so many bytes for each token; before them the number of tokens.
class pieces {
  public:
    pieces(const std::string & path, NnUint vocabulary) : bytes_(path.empty() ? "" : content(path)) {
        if (path.empty()) {
            return;
        }
        size_t     at    = 0;
        const auto count = take(at);
        for (NnUint token = 0; token < count && at <= bytes_.size(); token++) {
            const auto size = take(at);
            places_.push_back(std::make_pair(at, (size_t) size));
            at += size;
        }
        if (count != vocabulary || at != bytes_.size()) {
            throw usage_error(path + ": these are not the tokens of this model");
        }
    }

    void write(int file, NnUint token) const {
        if (places_.empty()) {
            return;
        }
        const char * at   = &bytes_[places_[token].first];
        size_t       left = places_[token].second;
        while (left > 0) {
            const ssize_t count = ::write(file, at, left);
            if (count < 0 && errno != EINTR) {
                throw std::runtime_error(std::string("the text cannot be written: ") + strerror(errno));
            }
            at += std::max<ssize_t>(count, 0);
            left -= (size_t) std::max<ssize_t>(count, 0);
        }
    }

  private:
    uint32_t take(size_t & at) const {
        uint32_t value = 0;
        if (at + sizeof(value) <= bytes_.size()) {
            std::memcpy(&value, &bytes_[at], sizeof(value));
        }
        at += sizeof(value);
        return value;
    }

    std::string                            bytes_;
    std::vector<std::pair<size_t, size_t>> places_;
};

// One call of the executor, with its line of the trace.
class timed {
  public:
    timed(NnExecutor & executor, NnNetwork * network) : executor_(executor), network_(network) {}

    template <typename Call> void run(NnUint tokens, bool is_prompt, Call call) {
        armload_step step = armload_step();
        step.sequences    = 1;
        step.tokens       = tokens;
        (is_prompt ? step.prompt_tokens : step.generated_tokens) = tokens;
        step.start = armload_count_at_start();
        call();
        step.end = armload_count_at_end();
        if (network_ != nullptr) {
            NnSize sent, received;
            network_->getStats(&sent, &received);
            step.is_shared      = true;
            step.sync_ns        = (int64_t) executor_.getTotalTime(STEP_SYNC_NODES) * 1000;
            step.sent_bytes     = (int64_t) sent;
            step.received_bytes = (int64_t) received;
        }
        if (armload_trace_wanted()) {
            armload_trace_write(&step);
        }
    }

  private:
    NnExecutor & executor_;
    NnNetwork *  network_;
};

class generation {
  public:
    generation(const options & given, NnUint vocabulary, int text)
        : prompt_(tokens_in(need(given, "--prompt"), vocabulary)),
          pieces_(given.count("--pieces") ? given.at("--pieces") : "", vocabulary),
          wanted_(number(given, "-n", 0)), vocabulary_(vocabulary), text_(text) {
        if (given.count("--end")) {
            for (const std::string & each : split(given.at("--end"), ',')) {
                ends_.insert((NnUint) strtoul(each.c_str(), nullptr, 10));
            }
        }
        if (given.count("--logits")) {
            rows_.open(given.at("--logits").c_str(), std::ios::binary | std::ios::trunc);
        }
    }

    NnUint tokens() const { return (NnUint) prompt_.size() + wanted_; }

    void run(RootLlmInference & inference, timed & step, NnUint batch) {
        NnUint position = 0;
        NnUint token    = 0;
        while (position < prompt_.size()) {
            const NnUint count = std::min(batch, (NnUint) prompt_.size() - position);
            inference.setBatchSize(count);
            inference.setPosition(position);
            for (NnUint i = 0; i < count; i++) {
                inference.setToken(i, prompt_[position + i]);
            }
            step.run(count, true, [&] { inference.forward(); });
            if (rows_.is_open()) {
                const auto size = (std::streamsize) (sizeof(float) * count * vocabulary_);
                if (!rows_.write((const char *) inference.logitsPipe, size)) {
                    throw std::runtime_error("--logits: the file cannot be written");
                }
            }
            position += count;
            token = likeliest(&inference.logitsPipe[(size_t) (count - 1) * vocabulary_]);
        }
        inference.setBatchSize(1);
        // The last token is sampled, but it need not go through the model.
        for (NnUint made = 1; made <= wanted_ && ends_.count(token) == 0; made++) {
            pieces_.write(text_, token);
            if (made == wanted_) {
                break;
            }
            inference.setPosition(position++);
            inference.setToken(0, token);
            step.run(1, false, [&] { inference.forward(); });
            token = likeliest(inference.logitsPipe);
        }
    }

  private:
    NnUint likeliest(const float * logits) const {
        return (NnUint) (std::max_element(logits, logits + vocabulary_) - logits);
    }

    std::vector<NnUint> prompt_;
    pieces              pieces_;
    NnUint              wanted_;
    NnUint              vocabulary_;
    int                 text_;
    std::set<NnUint>    ends_;
    std::ofstream       rows_;
};

LlmHeader header_of(const std::string & model, NnUint context) {
    LlmHeader header = loadLlmHeader(model.c_str(), context, F_32);
    header.syncType  = header.weightType == F_Q40 ? F_Q80 : F_32;
    return header;
}

int run_root(const options & given, int text) {
    const std::string              model   = need(given, "--model");
    const std::vector<std::string> workers = split(given.count("--workers") ? given.at("--workers") : "", ',');
    std::vector<std::vector<std::string>> peers(workers.size());
    if (given.count("--peers")) {
        const std::vector<std::string> lists = split(given.at("--peers"), ';');
        for (size_t i = 0; i < lists.size() && i < peers.size(); i++) {
            peers[i] = split(lists[i], ',');
        }
    }
    for (size_t i = 0; i < peers.size(); i++) {
        if (peers[i].size() != workers.size() - i - 1) {
            throw usage_error("--peers: each worker needs the address of each one after it");
        }
    }
    const NnUint nodes   = (NnUint) workers.size() + 1;
    const NnUint threads = number(given, "--threads", 1);
    const NnUint batch   = number(given, "--batch", 32);
    const NnUint context = number(given, "--context", 0);

    LlmHeader         header = header_of(model, context);
    const output_rest rest(model, header);
    generation        text_of(given, header.vocabSize, text);
    if (text_of.tokens() > header.seqLen) {
        throw usage_error("--context " + std::to_string(header.seqLen) + " is too small: prompt and output take " +
                          std::to_string(text_of.tokens()) + " tokens");
    }
    LlmNet                                        net = buildLlmNet(&header, nodes, batch);
    rest.add_to(net, nodes);
    std::unique_ptr<LlmNet, void (*)(LlmNet *)>   release(&net, releaseLlmNet);
    NnNodeConfig *                                own = &net.nodeConfigs[0];
    NnNetExecution                                execution(threads, &net.netConfig);
    std::unique_ptr<NnNetwork>                    network;
    std::unique_ptr<NnNodeSynchronizer>           synchronizer(new NnFakeNodeSynchronizer());
    if (nodes > 1) {
        network = connect_root(workers, peers, key_of(given));
        synchronizer.reset(new NnNetworkNodeSynchronizer(network.get(), &execution, &net.netConfig, own));
        NnRootConfigWriter(network.get()).writeToWorkers(&net.netConfig, net.nodeConfigs);
    }
    std::vector<NnExecutorDevice> devices;
    devices.push_back(NnExecutorDevice(new NnCpuDevice(&net.netConfig, own, &execution), -1, -1));
    NnExecutor         executor(&net.netConfig, own, &devices, &execution, synchronizer.get(), true);
    NnRootWeightLoader loader(&executor, network.get(), nodes);
    rest.load(loader, net);
    loadLlmNetWeight(model.c_str(), &net, &loader);

    RootLlmInference inference(&net, &execution, &executor, network.get());
    if (network) {
        network->resetStats();
        network->setTurbo(number(given, "--poll", 1) != 0);
    }
    armload_trace_begin((int32_t) threads);
    timed step(executor, network.get());
    text_of.run(inference, step, batch);
    inference.finish();
    return 0;
}

void serve(NnNetwork & network, NnUint threads, bool polls) {
    NnWorkerConfigReader                                reader(&network);
    NnNetConfig                                         net  = reader.readNet();
    NnNodeConfig                                        node = reader.readNode();
    std::unique_ptr<NnNetConfig, void (*)(NnNetConfig *)>   release_net(&net, releaseNetConfig);
    std::unique_ptr<NnNodeConfig, void (*)(NnNodeConfig *)> release_node(&node, releaseNodeConfig);
    NnNetExecution                                      execution(threads, &net);
    std::vector<NnExecutorDevice>                       devices;
    devices.push_back(NnExecutorDevice(new NnCpuDevice(&net, &node, &execution), -1, -1));
    NnNetworkNodeSynchronizer synchronizer(&network, &execution, &net, &node);
    NnExecutor                executor(&net, &node, &devices, &execution, &synchronizer, true);
    NnWorkerWeightReader(&executor, &network).read();

    WorkerLlmInference inference(&execution, &network);
    network.resetStats();
    armload_trace_begin((int32_t) threads);
    timed   step(executor, &network);
    bool    is_busy = false;
    clock_t idle_since = clock();
    for (;;) {
        if (!inference.tryReadControlPacket()) {
            // It asks again and again: after a second of that it waits instead.
            if (is_busy && clock() - idle_since > CLOCKS_PER_SEC) {
                network.setTurbo(false);
                is_busy = false;
            }
            continue;
        }
        if (inference.isFinished) {
            return;
        }
        if (polls && !is_busy) {
            network.setTurbo(true);
            is_busy = true;
        }
        const NnUint tokens = execution.batchSize;
        step.run(tokens, tokens > 1, [&] { executor.forward(); });
        idle_since = clock();
    }
}

int run_worker(const options & given) {
    const std::string host    = need(given, "--host");
    const std::string key     = key_of(given);
    const NnUint      port    = number(given, "--port", 0);
    const NnUint      threads = number(given, "--threads", 1);
    try {
        std::unique_ptr<NnNetwork> network = await_root(host, (int) port, key);
        serve(*network, threads, number(given, "--poll", 1) != 0);
    } catch (const NnTransferSocketException & error) {
        fprintf(stderr, "armload-dllama: another node has gone: %s\n", error.what());
    } catch (const NnExecutorException & error) {
        fprintf(stderr, "armload-dllama: another node has gone: %s\n", error.what());
    } catch (const mesh_error & error) {
        fprintf(stderr, "armload-dllama: another node has gone: %s\n", error.what());
    }
    // Whoever started it sees by that whether it is this node that has failed.
    pause();
    return 0;
}

void write_list(FILE * file, const char * name, const std::vector<long long> & values) {
    fprintf(file, "\"%s\":[", name);
    for (size_t i = 0; i < values.size(); i++) {
        fprintf(file, i > 0 ? ",%lld" : "%lld", values[i]);
    }
    fputc(']', file);
}

int run_times(const options & given, int text) {
    const NnUint    batch  = number(given, "--batch", 32);
    const LlmHeader header = header_of(need(given, "--model"), std::max(number(given, "--context", 0), batch));
    const output_rest rest(header, number(given, "--rest", 0) != 0);
    const node_times  found = time_node(header, rest, number(given, "--nodes", 1), number(given, "--threads", 1), batch,
                                        TIMED_S);
    FILE * const file = fdopen(text, "w");
    fputc('{', file);
    write_list(file, "first_ns", found.first_ns);
    fputc(',', file);
    write_list(file, "last_ns", found.last_ns);
    fputc(',', file);
    write_list(file, "prompt_ns", found.prompt_ns);
    fputs("}\n", file);
    return fclose(file) == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char ** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "--version") {
        printf("version: distributed-llama %s\n", ARMLOAD_ENGINE_COMMIT);
        return 0;
    }
    signal(SIGPIPE, SIG_IGN);
    // distributed-llama tells of its progress on standard output.
    const int text = fcntl(1, F_DUPFD_CLOEXEC, 3);
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(mode == "worker" ? null : 2, 1);
    setvbuf(stdout, nullptr, _IOLBF, 0);
    initQuants();
    try {
        if (mode == "root") {
            return run_root(parse(argc, argv), text);
        }
        if (mode == "worker") {
            return run_worker(parse(argc, argv));
        }
        if (mode == "times") {
            return run_times(parse(argc, argv), text);
        }
        fputs(USAGE, stderr);
        return mode == "--help" ? 0 : 2;
    } catch (const usage_error & error) {
        fprintf(stderr, "armload-dllama: %s\n", error.what());
        return 2;
    } catch (const NnTransferSocketException & error) {
        fprintf(stderr, "armload-dllama: another node has gone: %s\n", error.what());
    } catch (const NnExecutorException & error) {
        fprintf(stderr, "armload-dllama: another node has gone: %s\n", error.what());
    } catch (const std::exception & error) {
        fprintf(stderr, "armload-dllama: %s\n", error.what());
    }
    return 1;
}
