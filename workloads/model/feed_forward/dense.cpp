// A dense feed-forward: a product up (two of them where it is gated), the function between, and a product down.

#include "workloads/model/attention_form.hpp"

namespace orrery::model {

LayerOperations dense_feed_forward(const LayerContext& at, double width) {
    const auto hidden = static_cast<double>(at.model.hidden);
    const double up = at.model.gated ? 2 * width : width;
    LayerOperation activation{"activation function", LayerRole::activation, at.rows, up, width};
    activation.operands = width;
    return {product_of("feed-forward, up", LayerRole::input, at.rows, hidden, up), activation,
            product_of("feed-forward, down", LayerRole::output, at.rows, width, hidden)};
}

}  // namespace orrery::model
