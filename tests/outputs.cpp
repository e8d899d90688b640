// outputs.cpp: two models by the C++ bindings that amosc build writes; failures throw.
#include "first.hpp"
#include "second.hpp"
#include <cstdio>
#include <stdexcept>

#define CHECK(is)                                                                                  \
	do {                                                                                       \
		if (!(is))                                                                         \
			throw std::logic_error(#is);                                               \
	} while (0)

template <typename Call> static int status_of(Call call)
{
	try {
		call();
	} catch (const amos_cpp::error &e) {
		CHECK(*e.what());
		return e.status();
	}
	return AMOS_DONE;
}

static void fill(amos_cpp::instance &m)
{
	std::size_t i = 0;
	for (float &x : m.values<float>(AMOS_INPUTS, "x"))
		x = static_cast<float>(i++ % 5) - 2;
	for (int64_t &label : m.values<int64_t>(AMOS_INPUTS, "labels"))
		label = static_cast<int64_t>(i++ % 3);
}

int main()
{
	first::trainer a, b;
	second::trainer other;
	fill(a);
	fill(b);
	fill(other);
	for (int i = 0; i < 5; i++) {
		double loss = a.step();
		CHECK(b.gradient() == loss && other.step() > 0);
		b.update();
	}
	CHECK(a.store() == b.store() && a.steps() == 5 && a.shape(AMOS_INPUTS, "x").size() == 2);
	const std::vector<char> kept = a.store();
	CHECK(a.step() == b.step() && a.store() != kept);
	a.save("cpp.ckpt");
	a.export_onnx("cpp.onnx");
	CHECK(a.onnx() == b.onnx() && status_of([&] { a.export_onnx("no/a.onnx"); }) == AMOS_INPUT);
	a.set_rate(0.5);
	CHECK(status_of([&] { a.set_steps(9); }) == AMOS_USAGE); // it has no schedule
	CHECK(a.rate() == 0.5 && status_of([&] { a.set_rate(-1); }) == AMOS_INPUT);
	a.restore(kept);
	CHECK(a.store() == kept && a.rate() == 1 && a.block(AMOS_PARAMETERS).size() > 0);
	other.set_batch(1);
	other.forward();
	CHECK(other.shape(AMOS_OUTPUTS, "logits")[0] == 1 && status_of([&] { other.set_batch(3); }) == AMOS_USAGE);
	CHECK(other.output_shape("logits") == other.shape(AMOS_OUTPUTS, "logits"));
	CHECK(a.names(AMOS_PARAMETERS).size() == 4 && a.names(AMOS_PARAMETERS)[3] == "2.bias");
	alignas(64) float room[16] = {};
	amos_cpp::view<float> x = a.values<float>(AMOS_INPUTS, "x");
	double loss = a.evaluate();
	for (std::size_t i = 0; i < x.size(); i++) {
		room[i] = x[i];
		x[i] = 9;
	}
	a.set_input("x", room);
	CHECK(a.evaluate() == loss && status_of([&] { a.set_input("x", room + 1); }) == AMOS_INPUT);
	CHECK(status_of([&] { a.set_input("labels", room); }) == AMOS_INPUT);
	a.set_input("x", nullptr);
	CHECK(a.evaluate() != loss);
	char words[][8] = {"trainer", "info"}, *argv[] = {words[0], words[1], nullptr};
	CHECK(first::command(2, argv) == 0);
	first::trainer moved(std::move(a));
	moved.forward();
	CHECK(moved.values<float>(AMOS_OUTPUTS, "logits").size() == 6 && !a.get());
	CHECK(status_of([&] { a.step(); }) == AMOS_USAGE && status_of([&] { a.names(AMOS_INPUTS); }) == AMOS_USAGE);
	CHECK(status_of([&] { a.fit({"data", "data.npz"}); }) == AMOS_USAGE && status_of([&] { a.store(); }) == AMOS_USAGE);
	CHECK(status_of([&] { moved.values<float>(AMOS_INPUTS, "labels"); }) == AMOS_INPUT);
	CHECK(status_of([&] { moved.values<float>(AMOS_INPUTS, "nothing"); }) == AMOS_INPUT);
	CHECK(status_of([&] { moved.load("nowhere.ckpt"); }) == AMOS_INPUT);
	b.fit({"data", "data.npz", "steps", "5"}, [](const amos_progress &p) { return p.step == 8; });
	CHECK(b.steps() == 8 && status_of([&] { b.fit({"threads", "1"}); }) == AMOS_USAGE);
	bool thrown = false;
	try {
		b.fit({"data", "data.npz"}, [](const amos_progress &) -> bool { throw 1; });
	} catch (int) {
		thrown = true;
	}
	CHECK(thrown && b.steps() == 9);
	std::puts("C++");
	return 0;
}
