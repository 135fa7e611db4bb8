// src/ranks/load_plugin.cc: loads attn's library for one MPI, and uses it to make transports in programs that have
// initialised MPI themselves.
#include "ranks/load_plugin.h"

#include "runtime/format.h"

#include <dlfcn.h>
#include <unistd.h>

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
                find(plugin.family, "attn_mpi_family") && find(plugin.over, "attn_mpi_over") &&
                find(plugin.close, "attn_mpi_close");
  return plugin;
}

}  // namespace mpi

namespace {

void check_running(const mpi::Plugin& plugin) {
  const int state = plugin.state();
  if (state == static_cast<int>(mpi::State::finalised))
    throw ValueError("Ranks: MPI has been finalised; ranks can be used until then");
  if (state == static_cast<int>(mpi::State::not_initialised))
    throw ValueError("Ranks: MPI is not initialised, which is the caller's part");
}

/// A transport of a library that was loaded. Every operation of the ranks begins with all_gather, which throws if the
/// program has finalised MPI.
class LoadedTransport final : public Transport {
 public:
  LoadedTransport(const mpi::Plugin& plugin, Transport* transport) : plugin_(plugin), transport_(transport) {}
  ~LoadedTransport() override { plugin_.close(transport_); }
  LoadedTransport(const LoadedTransport&) = delete;
  LoadedTransport& operator=(const LoadedTransport&) = delete;

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  void all_gather(const void* mine, std::size_t bytes, void* all) override {
    check_running(plugin_);
    transport_->all_gather(mine, bytes, all);
  }
  Request send(int to, int channel, const void* data, std::size_t bytes) override {
    return transport_->send(to, channel, data, bytes);
  }
  Request receive(int from, int channel, void* data, std::size_t bytes) override {
    return transport_->receive(from, channel, data, bytes);
  }
  std::size_t wait(Request request) override { return transport_->wait(request); }
  void cancel(Request request) override { transport_->cancel(request); }
  std::size_t discard(int from, int channel) override { return transport_->discard(from, channel); }
  bool done(Request request) override { return transport_->done(request); }
  void progress() override { transport_->progress(); }
  [[noreturn]] void abort(int code) noexcept override {
    transport_->abort(code);
    ::_exit(code);
  }

 private:
  const mpi::Plugin plugin_;
  Transport* const transport_;
};

/// Returns the text without spaces and zeros at its end, which not every caller of MPI keeps.
std::string without_end(const std::string& text) {
  return text.substr(0, text.find_last_not_of(std::string_view(" \n\t\0", 4)) + 1);
}

/// Returns the name and number at the beginning of an MPI's description of itself.
std::string short_version(const std::string& version) {
  std::string text = version.substr(0, version.find_first_of(",\n"));
  std::replace(text.begin(), text.end(), '\t', ' ');
  return text;
}

}  // namespace

struct MpiLibrary::Loaded {
  mpi::Plugin plugin;
};

MpiLibrary::MpiLibrary(const std::vector<std::string>& files, const std::string& version) {
  const mpi::Plugin plugin = mpi::load_plugin(files);
  if (!plugin.found)
    throw ValueError(
        runtime::format("Ranks: attn's library for {} is not there ({}); build attn with "
                        "-DATTN_WITH_MPI=ON, or name its file in ATTN_MPI_LIBRARY",
                        short_version(version), plugin.failure));
  if (!plugin.fits) throw ValueError("Ranks: attn's library for MPI is not of this build of attn");
  // The family is checked first: with another one, its functions may replace those that the library was built against.
  const bool open_mpi = version.find("Open MPI") != std::string::npos;
  const std::string built = plugin.family(), own = without_end(plugin.version());
  if (const bool built_open_mpi = built == "openmpi"; built_open_mpi != open_mpi || own != without_end(version))
    throw ValueError(runtime::format(
        "Ranks: the program's MPI is {}, and attn's library is for {}; they must be the same", short_version(version),
        built_open_mpi == open_mpi ? short_version(own)
        : built_open_mpi           ? "Open MPI"
                                   : "MPICH"));
  check_running(plugin);
  loaded_ = std::make_shared<const Loaded>(Loaded{plugin});
}

std::shared_ptr<Transport> MpiLibrary::open(int communicator) const {
  check_running(loaded_->plugin);
  Transport* const transport = loaded_->plugin.over(communicator);
  if (transport == nullptr)
    throw ValueError("Ranks: the communicator is null, freed, or between two groups; one of a single group is needed");
  return std::make_shared<LoadedTransport>(loaded_->plugin, transport);
}

}  // namespace attn
