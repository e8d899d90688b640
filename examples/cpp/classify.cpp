// classify.cpp: keeps the best of a run: trains a classifier, and goes back to the checkpoint of
// the lowest loss.
#include "net.hpp"
#include <cstdio>
#include <cstdlib>
#include <random>

static void draw_batch(net::trainer &model, std::mt19937 &random)
{
	std::normal_distribution<float> noise(0, 0.3f);
	auto x = model.values<float>(AMOS_INPUTS, "x"); // a view of the model's memory, [16, 4]
	auto labels = model.values<int64_t>(AMOS_INPUTS, "labels");
	for (std::size_t i = 0; i < labels.size(); i++) {
		labels[i] = random() % 3;
		for (std::size_t k = 0; k < 4; k++)
			x[4 * i + k] = noise(random) + (k == static_cast<std::size_t>(labels[i]));
	}
}

int main()
try {
	net::trainer model; // freed at the end of its scope
	std::mt19937 random(5);
	std::vector<char> best;
	double first = 0, lowest = 0;
	for (int step = 0; step <= 500; step++) {
		if (step % 50 == 0) {
			std::mt19937 held_out(7); // the same batch each time
			draw_batch(model, held_out);
			double loss = model.evaluate();
			first = step ? first : loss;
			if (best.empty() || loss < lowest) {
				lowest = loss;
				best = model.store();
			}
		}
		draw_batch(model, random);
		model.step();
	}
	model.restore(best);
	std::printf("loss %.3f at first, %.3f after %d steps, the best\n", first, lowest,
	            static_cast<int>(model.steps()));
	return lowest < 0.5 * first ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const amos_cpp::error &error) {
	std::fprintf(stderr, "%s\n", error.what());
	return EXIT_FAILURE;
}
