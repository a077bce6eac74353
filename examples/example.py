"""An Actor and a Spot that move while they are used."""

import asyncio

import sojourn as sj

app = sj.App("arena", version=1)


@app.actor
class Player(sj.Actor):
    score: int = 0

    @sj.request
    async def hit(self, points: int) -> int:
        self.score += points
        await self.spot(Board, "today").send(Board.note, self.id, self.score)
        return self.score


@app.spot
class Board(sj.InstanceSpot):  # made by the first message to its id
    best: str = "nobody"

    @sj.send
    async def note(self, name: str, score: int) -> None:
        self.best = f"{name} with {score}"

    @sj.request
    async def read(self) -> str:
        return self.best


async def main(cluster: sj.LocalCluster) -> None:
    first, second = cluster.nodes
    ada = await cluster.client.create(Player, "ada", at=first)
    print(await ada.request(Player.hit, 3))
    await ada.relocate(to=second)  # the score goes along
    print(await ada.request(Player.hit, 4))
    await second.relocate(mode="PlannedMaintenance")  # empty a whole node
    print(await ada.request(Player.hit, 5))
    print(await cluster.client.spot(Board, "today").request(Board.read))


async def start() -> None:
    async with sj.LocalCluster(app, nodes=2) as cluster:  # real processes
        await main(cluster)


if __name__ == "__main__":
    asyncio.run(start())
