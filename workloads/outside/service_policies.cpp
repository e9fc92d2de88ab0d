// The autoscaler and the admission of a service that ask a process, or a recording, for each decision. README.md has the messages.

#include "workloads/outside/connection.hpp"
#include "workloads/outside/messages.hpp"
#include "workloads/outside/policies.hpp"

#include <utility>

namespace orrery::outside {

namespace {

class RemoteAutoscaler final : public policy::Autoscaler {
  public:
    RemoteAutoscaler(std::shared_ptr<Connection> connection, const std::string& parameters)
        : connection_(std::move(connection)) {
        connection_->send(opening("autoscaler", 0, parameters));
    }
    std::uint32_t scale(const policy::Pool& pool) override {
        text_.clear();
        add(text_,
            R"({{"scale":{},"time":{},"interval":{},"outstanding":{},"arrived":{},"running":{},"starting":{},"least":{},)"
            R"("most":{},"target":{}}})",
            pool.number, pool.now, pool.interval, pool.outstanding, pool.arrived, pool.running, pool.starting,
            pool.least, pool.most, pool.target);
        connection_->send({text_.data(), text_.size()});
        return read_replicas(connection_->receive(), connection_->name());
    }

  private:
    std::shared_ptr<Connection> connection_;
    Text text_;
};

class RecordedAutoscaler final : public policy::Autoscaler {
  public:
    explicit RecordedAutoscaler(std::shared_ptr<Recording> recording) : recording_(std::move(recording)) {}
    std::uint32_t scale(const policy::Pool& pool) override {
        return read_replicas(recording_->next("autoscaler", pool.number, pool.now), recording_->file());
    }

  private:
    std::shared_ptr<Recording> recording_;
};

class RemoteAdmission final : public policy::Admission {
  public:
    RemoteAdmission(std::shared_ptr<Connection> connection, const std::string& parameters)
        : connection_(std::move(connection)) {
        connection_->send(opening("admission", 0, parameters));
    }
    bool admits(const policy::Replicas& replicas, const policy::Request& request) override {
        text_.clear();
        add(text_, R"({{"admit":0)");
        add_request(text_, replicas, request);
        connection_->send({text_.data(), text_.size()});
        return read_admission(connection_->receive(), connection_->name());
    }

  private:
    std::shared_ptr<Connection> connection_;
    Text text_;
};

class RecordedAdmission final : public policy::Admission {
  public:
    explicit RecordedAdmission(std::shared_ptr<Recording> recording) : recording_(std::move(recording)) {}
    bool admits(const policy::Replicas&, const policy::Request& request) override {
        return read_admission(recording_->next("admission", 0, request.now), recording_->file());
    }

  private:
    std::shared_ptr<Recording> recording_;
};

}  // namespace

std::unique_ptr<policy::Autoscaler> remote_autoscaler(std::shared_ptr<Connection> connection, std::string parameters) {
    return std::make_unique<RemoteAutoscaler>(std::move(connection), parameters);
}

std::unique_ptr<policy::Autoscaler> recorded_autoscaler(std::shared_ptr<Recording> recording) {
    return std::make_unique<RecordedAutoscaler>(std::move(recording));
}

std::unique_ptr<policy::Admission> remote_admission(std::shared_ptr<Connection> connection, std::string parameters) {
    return std::make_unique<RemoteAdmission>(std::move(connection), parameters);
}

std::unique_ptr<policy::Admission> recorded_admission(std::shared_ptr<Recording> recording) {
    return std::make_unique<RecordedAdmission>(std::move(recording));
}

}  // namespace orrery::outside
