// src/ranks/load_plugin.cc: loads attn's library for one MPI, and makes transports by it in programs that have
// initialised MPI themselves.
#include "ranks/load_plugin.h"

#include "runtime/format.h"

#include <dlfcn.h>

#include <algorithm>

namespace attn {
namespace mpi {

Plugin load_plugin(const std::vector<std::string>& files) {
  Plugin plugin;
  void* library = nullptr;
  for (const std::string& file : files) {
    if (library != nullptr) break;
    // MPI's own plugins look for its symbols among those of the process
    library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) plugin.failure = ::dlerror();
  }
  if (library == nullptr) return plugin;
  plugin.found = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    return function != nullptr;
  };
  decltype(&attn_mpi_interface) interface_of = nullptr;
  plugin.fits = find(interface_of, "attn_mpi_interface") && interface_of() == plugin_interface &&
                find(plugin.begin, "attn_mpi_begin") && find(plugin.end, "attn_mpi_end") &&
                find(plugin.state, "attn_mpi_state") && find(plugin.version, "attn_mpi_version") &&
                find(plugin.over, "attn_mpi_over") && find(plugin.close, "attn_mpi_close");
  return plugin;
}

}  // namespace mpi

namespace {

/// A transport of a library that was loaded. Everything that ranks do together begins with a gathering, which is where
/// a program is told that it has finalised MPI.
class LoadedTransport final : public Transport {
 public:
  LoadedTransport(const mpi::Plugin& plugin, Transport* transport) : plugin_(plugin), transport_(transport) {}
  ~LoadedTransport() override { plugin_.close(transport_); }
  LoadedTransport(const LoadedTransport&) = delete;
  LoadedTransport& operator=(const LoadedTransport&) = delete;

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  void all_gather(const void* mine, std::size_t bytes, void* all) override {
    if (plugin_.state() != static_cast<int>(mpi::State::running))
      throw ValueError("Ranks: MPI has been finalised; ranks can be used until then");
    transport_->all_gather(mine, bytes, all);
  }
  Request send(int to, int channel, const void* data, std::size_t bytes) override {
    return transport_->send(to, channel, data, bytes);
  }
  Request receive(int from, int channel, void* data, std::size_t bytes) override {
    return transport_->receive(from, channel, data, bytes);
  }
  void wait(Request request) override { transport_->wait(request); }
  [[noreturn]] void abort(int code) noexcept override { transport_->abort(code); }

 private:
  const mpi::Plugin plugin_;
  Transport* const transport_;
};

/// Returns the name and number at the beginning of an MPI's description of itself.
std::string short_version(const std::string& version) {
  std::string text = version.substr(0, version.find_first_of(",\n"));
  std::replace(text.begin(), text.end(), '\t', ' ');
  return text;
}

}  // namespace

std::shared_ptr<Transport> open_transport(const std::vector<std::string>& files, int communicator,
                                          const std::string& version) {
  const mpi::Plugin plugin = mpi::load_plugin(files);
  if (!plugin.found)
    throw ValueError(runtime::format("Ranks: attn's library for {} is not there ({}); build attn with "
                                     "-DATTN_WITH_MPI=ON, or name its file in ATTN_MPI_LIBRARY",
                                     short_version(version), plugin.failure));
  if (!plugin.fits) throw ValueError("Ranks: attn's library for MPI is not of this build of attn");
  if (const std::string own = plugin.version(); own != version)
    throw ValueError(runtime::format("Ranks: the communicator is of {}, and attn's library of {}; both need one MPI",
                                     short_version(version), short_version(own)));
  if (const int state = plugin.state(); state != static_cast<int>(mpi::State::running))
    throw ValueError(state == static_cast<int>(mpi::State::finalised)
                         ? "Ranks: MPI has been finalised; ranks can be used until then"
                         : "Ranks: MPI is not initialised; that is the caller's part");
  Transport* const transport = plugin.over(communicator);
  if (transport == nullptr)
    throw ValueError("Ranks: the communicator is null, freed, or one between two groups; one of a group is needed");
  return std::make_shared<LoadedTransport>(plugin, transport);
}

}  // namespace attn
