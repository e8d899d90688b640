// @FILE@.hpp: the model @ID@ in C++11, by @FILE@.h. An instance owns its memory; failures throw.
//
//     @ID@::trainer model;
//     for (auto &x : model.values<float>(AMOS_INPUTS, "..."))
//             x = ...;
//     double loss = model.step();
#ifndef AMOS_CPP_@ID@
#define AMOS_CPP_@ID@
#include "@FILE@.h"
#ifndef AMOS_CPP
#define AMOS_CPP
#include <cstddef>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace amos_cpp {

// A failed call: what() is amos_error(), status() an amos_status.
class error : public std::runtime_error {
	int code;

      public:
	explicit error(int status, const std::string &text = amos_error())
	    : std::runtime_error(text), code(status)
	{
	}
	int status() const { return code; }
};

inline std::size_t size_of(int64_t bytes) { return static_cast<std::size_t>(bytes); }

inline void need(int status)
{
	if (status)
		throw error(status);
}

// The elements of an array in an instance, which stays their owner. std::span(v.data(), v.size()).
template <typename T> class view {
	T *first;
	std::size_t count;

      public:
	view(T *data, std::size_t size) : first(data), count(size) {}
	T *data() const { return first; }
	std::size_t size() const { return count; }
	T *begin() const { return first; }
	T *end() const { return first + count; }
	T &operator[](std::size_t i) const { return first[i]; }
};

template <typename T> struct element;
template <> struct element<double> { static enum amos_type type() { return AMOS_F64; } };
template <> struct element<float> { static enum amos_type type() { return AMOS_F32; } };
template <> struct element<int64_t> { static enum amos_type type() { return AMOS_I64; } };
template <> struct element<int32_t> { static enum amos_type type() { return AMOS_I32; } };
template <> struct element<int16_t> { static enum amos_type type() { return AMOS_I16; } };
template <> struct element<int8_t> { static enum amos_type type() { return AMOS_I8; } };
template <> struct element<uint8_t> { static enum amos_type type() { return AMOS_U8; } };
template <> struct element<bool> { static enum amos_type type() { return AMOS_BOOL; } };

// An instance of a model. It can be moved, not copied; one thread at a time uses it. Calls of one
// that was moved to another throw.
class instance {
	amos *m; // nullptr: moved from

	amos *live() const
	{
		if (!m)
			throw error(AMOS_USAGE, "the instance was moved to another");
		return m;
	}
	int64_t number(amos_kind kind, const std::string &name) const
	{
		int64_t i = amos_find(live(), kind, name.c_str());
		if (i < 0)
			throw error(AMOS_INPUT, "no array '" + name + "' of this kind");
		return i;
	}

      public:
	explicit instance(const struct amos_model &model, const amos_setup *setup = nullptr) : m(nullptr)
	{
		need(amos_open(&model, setup, &m));
	}
	instance(instance &&other) noexcept : m(other.m) { other.m = nullptr; }
	instance &operator=(instance &&other) noexcept
	{
		std::swap(m, other.m);
		return *this;
	}
	instance(const instance &) = delete;
	instance &operator=(const instance &) = delete;
	~instance() { amos_close(m); }
	amos *get() const { return m; }

	// Returns the elements of an array. Throws if there is none of this name, or of other type.
	template <typename T> view<T> values(amos_kind kind, const std::string &name) const
	{
		int64_t i = number(kind, name);
		void *data = amos_values(live(), kind, i);
		if (!data || amos_type(live(), kind, i) != element<T>::type())
			throw error(AMOS_INPUT, "'" + name + "' has elements of another type, or none");
		return view<T>(static_cast<T *>(data), amos_bytes(live(), kind, i) / sizeof(T));
	}
	std::vector<std::string> names(amos_kind kind) const
	{
		std::vector<std::string> all;
		for (int64_t i = 0; i < amos_count(live(), kind); i++)
			all.push_back(amos_name(live(), kind, i));
		return all;
	}
	std::vector<int64_t> shape(amos_kind kind, const std::string &name) const
	{
		int64_t i = number(kind, name);
		const int64_t *at = amos_shape(live(), kind, i);
		return std::vector<int64_t>(at, at + amos_rank(live(), kind, i));
	}
	// The shape that an output had in the last call.
	std::vector<int64_t> output_shape(const std::string &name) const
	{
		std::vector<int64_t> at = shape(AMOS_OUTPUTS, name);
		amos_output_shape(live(), number(AMOS_OUTPUTS, name), at.data());
		return at;
	}
	// Sets where calls read an input: `values`, as many as values() has, at a multiple of 64
	// bytes. They stay until another setting or the end of the instance. nullptr: its own.
	template <typename T> void set_input(const std::string &name, const T *values)
	{
		int64_t i = number(AMOS_INPUTS, name);
		if (amos_type(live(), AMOS_INPUTS, i) != element<T>::type())
			throw error(AMOS_INPUT, "'" + name + "' has elements of another type");
		need(amos_set_input(live(), i, values));
	}
	void set_input(const std::string &name, std::nullptr_t)
	{
		need(amos_set_input(live(), number(AMOS_INPUTS, name), nullptr));
	}
	// All parameters, gradients or state, as floats.
	view<float> block(amos_kind kind) const
	{
		int64_t bytes;
		void *data = amos_block(live(), kind, &bytes);
		return view<float>(static_cast<float *>(data), size_of(bytes) / sizeof(float));
	}

	void set_batch(int64_t samples) { need(amos_set_batch(live(), samples)); }
	void forward() { need(amos_forward(live())); }
	double evaluate() { return loss_of(amos_evaluate); }
	double step() { return loss_of(amos_step); }
	double gradient() { return loss_of(amos_gradient); }
	void update() { need(amos_update(live())); }
	int64_t steps() const { return amos_steps(live()); }
	double rate() const { return amos_rate(live()); }
	void set_rate(double factor) { need(amos_set_rate(live(), factor)); }
	void set_steps(int64_t n) { need(amos_set_steps(live(), n)); }
	double metric(const std::string &name) const { return amos_metric(live(), name.c_str()); }

	// Trains on files: {"data", "train.npz", "epochs", "3"}. progress() returns true to stop.
	using progress = std::function<bool(const amos_progress &)>;
	void fit(const std::vector<std::string> &options, const progress &call = nullptr)
	{
		std::vector<const char *> words;
		for (const std::string &word : options)
			words.push_back(word.c_str());
		words.push_back(nullptr);
		watch w = {call, nullptr};
		amos_training training = amos_training();
		training.size = sizeof training;
		training.options = words.data();
		training.progress = call ? &watch::show : nullptr;
		training.context = &w;
		int status = amos_fit(live(), &training);
		if (w.thrown)
			std::rethrow_exception(w.thrown);
		need(status);
	}

	void save(const std::string &path) const { need(amos_save(live(), path.c_str())); }
	void load(const std::string &path) { need(amos_load(live(), path.c_str())); }
	std::vector<char> store() const
	{
		std::vector<char> to(size_of(amos_checkpoint_bytes(live())));
		need(amos_store(live(), to.data(), static_cast<int64_t>(to.size())));
		return to;
	}
	void restore(const std::vector<char> &from)
	{
		need(amos_restore(live(), from.data(), static_cast<int64_t>(from.size())));
	}
	// The trained model: as a file, and as the bytes of one.
	void export_onnx(const std::string &path) const { need(amos_export_onnx(live(), path.c_str())); }
	std::vector<char> onnx() const
	{
		std::vector<char> to(size_of(amos_onnx_bytes(live())));
		need(amos_store_onnx(live(), to.data(), static_cast<int64_t>(to.size())));
		return to;
	}

      private:
	struct watch { // no exception may pass through C
		const progress &call;
		std::exception_ptr thrown;

		static int show(void *context, const amos_progress *now)
		{
			watch *w = static_cast<watch *>(context);
			try {
				return w->call(*now);
			} catch (...) {
				w->thrown = std::current_exception();
				return 1;
			}
		}
	};
	double loss_of(int (*call)(amos *, double *))
	{
		double loss;
		need(call(live(), &loss));
		return loss;
	}
};

} // namespace amos_cpp
#endif

namespace @ID@ {

struct trainer : amos_cpp::instance {
	explicit trainer(const amos_setup *setup = nullptr) : instance(@ID@_model, setup) {}
};

// Runs the trainer as a command, which prints and may exit. Returns the exit status.
inline int command(int argc, char **argv) { return amos_main(&@ID@_model, argc, argv); }

} // namespace @ID@
#endif
