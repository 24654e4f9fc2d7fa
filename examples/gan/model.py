"""A GAN with a penalty of gradients (WGAN-GP) that draws images of 8 x 8 pixels."""

import keras
import tensorflow as tf
from gorbit_export import Feature, Model, Phase
from keras import layers

NOISE = 8
Tensor = tf.Tensor
Batch = dict[str, Tensor]


class GAN(keras.Model):
    """A generator and its critic."""

    def __init__(self, width: int) -> None:
        """Makes both networks, which have variables from here on."""
        super().__init__()
        self.generator = keras.Sequential(
            [keras.Input((NOISE,)), layers.Dense(width, "relu"), layers.Dense(64, "sigmoid")],
            name="generator",
        )
        self.critic = keras.Sequential(
            [keras.Input((64,)), layers.Dense(width), layers.LeakyReLU(0.2), layers.Dense(1)],
            name="critic",
        )
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, noise: Tensor, training: bool = False) -> Tensor:
        """What predictions are: images of noise."""
        return self.generator(noise, training=training)

    def fakes(self, batch: Batch, training: bool) -> Tensor:
        """Makes as many images as a batch has, in training of new noise."""
        noise = batch["noise"]
        if training:
            noise = keras.random.normal(tf.shape(noise), seed=self.seeds)
        return self.generator(noise, training=training)

    def critic_loss(self, batch: Batch, training: bool) -> tuple[Tensor, Batch]:
        """How real the critic finds made images, next to real ones, with the penalty."""
        real, fake = batch["image"], self.fakes(batch, training)
        found = self.critic(fake)[:, 0] - self.critic(real)[:, 0]
        mix = keras.random.uniform((tf.shape(real)[0], 1), seed=self.seeds)
        between = real + mix * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(between)
            answers = self.critic(between)
        slope = tf.norm(tape.gradient(answers, between), axis=1)
        return found + 10 * tf.square(slope - 1), {"distance": -found}

    def generator_loss(self, batch: Batch, training: bool) -> Tensor:
        """How bad the critic finds the generator's images, per example."""
        return -self.critic(self.fakes(batch, training))[:, 0]

    def distance(self, batch: Batch, training: bool) -> Tensor:
        """How far real images are from the generator's to the critic, per example."""
        return self.critic(batch["image"])[:, 0] - self.critic(self.fakes(batch, training))[:, 0]


def build(width: int = 32, n_critic: int = 3) -> Model:
    """Makes the model; the arguments are those of --set."""
    gan = GAN(width)
    return Model(
        model=gan,
        features=[
            Feature("image", "float32", (None, 64), label=True),
            Feature("noise", "float32", (None, NOISE)),
        ],
        phases=[
            Phase(
                "critic",
                loss=gan.critic_loss,
                variables=gan.critic.trainable_variables,
                optimizer=keras.optimizers.Adam(2e-3, beta_1=0.5),
            ),
            Phase(
                "generator",
                loss=gan.generator_loss,
                variables=gan.generator.trainable_variables,
                optimizer=keras.optimizers.Adam(1e-3, beta_1=0.5),
                every=n_critic,
                offset=n_critic - 1,
            ),
        ],
        evaluate=gan.distance,
    )
