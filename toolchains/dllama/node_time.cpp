#include "node_time.h"

#include "app.hpp"

#include <algorithm>
#include <chrono>

namespace {

typedef std::chrono::steady_clock steady;

const size_t FEWEST = 3, MOST = 200;

void fill(NnExecutor & executor, const NnNodeConfig & node) {
    NnSize most = 0;
    for (int is_measured = 0; is_measured < 2; is_measured++) {
        std::vector<NnByte> zeros(is_measured ? most : 0);
        for (NnUint i = 0; i < node.nSegments; i++) {
            for (NnUint j = 0; j < node.segments[i].nOps; j++) {
                const NnOpConfig & op = node.segments[i].ops[j];
                most                  = std::max(most, op.weightSize.nBytes);
                if (is_measured && op.weightSize.nBytes > 0) {
                    executor.loadWeight(op.name, op.index, 0, op.weightSize.nBytes, zeros.data());
                }
            }
        }
    }
}

// The first call does not count: it finds its data nowhere.
template <typename Call> std::vector<long long> timed(double seconds, Call call) {
    std::vector<long long> found;
    call();
    const steady::time_point began = steady::now();
    while (found.size() < FEWEST ||
           (found.size() < MOST && std::chrono::duration<double>(steady::now() - began).count() < seconds)) {
        const steady::time_point start = steady::now();
        call();
        found.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(steady::now() - start).count());
    }
    return found;
}

} // namespace

node_times time_node(LlmHeader header, const output_rest & rest, NnUint nodes, NnUint threads, NnUint batch,
                     double seconds) {
    LlmNet net = buildLlmNet(&header, nodes, batch);
    rest.add_to(net, nodes);
    std::unique_ptr<LlmNet, void (*)(LlmNet *)> release(&net, releaseLlmNet);
    // The root has the embedding besides, of which a token takes one row.
    NnNodeConfig *                node = &net.nodeConfigs[nodes - 1];
    NnNetExecution                execution(threads, &net.netConfig);
    NnFakeNodeSynchronizer        alone;
    std::vector<NnExecutorDevice> devices;
    devices.push_back(NnExecutorDevice(new NnCpuDevice(&net.netConfig, node, &execution), -1, -1));
    NnExecutor executor(&net.netConfig, node, &devices, &execution, &alone, false);
    fill(executor, *node);
    RootLlmInference inference(&net, &execution, &executor, nullptr);

    node_times found;
    inference.setBatchSize(1);
    inference.setToken(0, 0);
    inference.setPosition(0);
    found.first_ns = timed(seconds, [&] { inference.forward(); });
    inference.setPosition(header.seqLen - 1);
    found.last_ns = timed(seconds, [&] { inference.forward(); });
    inference.setBatchSize(batch);
    inference.setPosition(0);
    for (NnUint i = 0; i < batch; i++) {
        inference.setToken(i, 0);
    }
    found.prompt_ns = timed(seconds, [&] { inference.forward(); });
    return found;
}
